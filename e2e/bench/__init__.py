"""Benchmarks: figures with the commands that make them. Never part of the tests."""
