"""The real vLLM (CPU build) for tests, the demo and the local cluster: installed, given a tiny model, started, asked.

Runs under the operator's environment, which has no torch: whatever needs vLLM is done by the engine's own Python, in a
process of its own.
"""
