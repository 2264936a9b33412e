"""Routing to a pool's tiers: a standalone Envoy, or objects for an inference gateway."""
