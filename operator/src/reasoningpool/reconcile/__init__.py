"""Observe, plan, apply: everything between the watches and the API, with no decisions of its own."""
