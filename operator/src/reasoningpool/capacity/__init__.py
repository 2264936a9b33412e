"""Capacity planning: from requests and a rate to replicas, GPUs, latencies and costs.

Pure, above the sizing: `read_log`, `page_histograms` and `lengths` give requests, `tier_requests` gives those of a
tier, `plan_tier` the answer. The engine's limits come from `sizing.plan`; this package adds rates, waiting and costs.
"""
