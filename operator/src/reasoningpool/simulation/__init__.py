"""Simulations of engines and replicas under load: the scheduler request by request, and queueing. Pure."""
