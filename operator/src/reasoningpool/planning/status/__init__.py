"""The status of a pool: conditions, tiers, and refusals by the API server."""
