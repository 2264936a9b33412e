"""Metrics on vLLM's own /metrics page.

Labels are bounded: tiers and efforts come from the configuration, all others are closed lists. With several API-server
processes vLLM sets PROMETHEUS_MULTIPROC_DIR and adds the processes up.
"""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_TOKENS = (0, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_WAITS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BY_EFFORT = ("tier", "effort")


class Metrics:
    """One set per registry; see `metrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"reasoningpool_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str, mode: str = "livesum") -> Gauge:
            return Gauge(f"reasoningpool_{name}", text, labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"reasoningpool_{name}", text, labels, registry=registry, buckets=buckets)

        self.requests = counter(
            "requests",
            "Governed requests by outcome (completed, refused, failed, cancelled).",
            "api",
            *_BY_EFFORT,
            "outcome",
        )
        self.in_flight = gauge("requests_in_flight", "Governed requests that wait or run.")
        self.first_answer = histogram(
            "time_to_first_answer_token_seconds",
            "Streamed requests: from arrival to the first token of the answer, waiting and thinking included.",
            _SECONDS,
            *_BY_EFFORT,
        )
        self.thinking = histogram("thinking_tokens", "Thinking tokens of completed requests.", _TOKENS, *_BY_EFFORT)
        self.answer = histogram("answer_tokens", "Answer tokens of completed requests.", _TOKENS, *_BY_EFFORT)
        self.budget = histogram(
            "thinking_budget_applied_tokens", "Thinking budgets given to requests.", _TOKENS, *_BY_EFFORT
        )
        self.length_finishes = counter(
            "length_finishes", "Outputs cut by max_tokens, by what was cut.", *_BY_EFFORT, "phase"
        )
        self.closures = counter("forced_closures", "Thoughts that the runtime ended itself.", *_BY_EFFORT)
        self.clamps = counter("clamps", "Requests given less than they asked for, by field.", "tier", "field")
        self.refusals = counter("refusals", "Requests refused by the runtime, by reason.", "tier", "reason")
        self.unenforced = counter(
            "unenforced_budgets", "Requests whose thinking budget only the total cap enforced.", *_BY_EFFORT
        )
        self.stripped_messages = counter(
            "stripped_history_messages", "Earlier messages that lost their thinking.", "tier"
        )
        self.stripped_characters = counter(
            "stripped_history_characters", "Characters of thinking removed from earlier messages.", "tier"
        )
        self.errors = counter("middleware_errors", "Failures inside the runtime, by where.", "where")
        self.admission_wait = histogram(
            "admission_wait_seconds", "Time that requests waited for admission.", _WAITS, *_BY_EFFORT
        )
        self.queue = gauge("admission_queue_requests", "Requests waiting for admission.")
        self.queue_tokens = gauge("admission_queue_prompt_tokens", "Prompt tokens of requests waiting for admission.")
        self.resident = gauge("admission_resident_tokens", "KV tokens that running requests hold now.")
        self.committed = gauge("admission_committed_tokens", "KV tokens that running requests hold at the most.")
        self.forecast = gauge("admission_forecast_tokens", "Expected peak of KV tokens of the running requests.")
        self.capacity = gauge("admission_capacity_tokens", "KV tokens that the engine's pool holds.", mode="livemax")
        self.config_valid = gauge("config_valid", "1: the configuration file is good; 0: it is not.", mode="livemin")
        self.config_loads = counter("config_loads", "Configurations taken over.")
        self.draining = gauge("draining", "1: new requests are refused.", mode="livemax")
        self.enforced = gauge(
            "thinking_budget_enforced",
            "Probe: 1 the engine holds thinking budgets, 0 it does not, -1 not known.",
            mode="livemin",
        )
        self.trace_records = counter("trace_log_records", "Records of the trace log.", "outcome")


@lru_cache
def metrics(registry: CollectorRegistry = REGISTRY) -> Metrics:
    """The metrics in a registry, made on first use."""
    return Metrics(registry)
