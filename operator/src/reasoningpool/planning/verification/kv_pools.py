"""Which replicas are asked for the KV pool of their engine."""

from __future__ import annotations

from reasoningpool.api import names
from reasoningpool.planning.live import LivePod, LiveTier
from reasoningpool.planning.observations import KVPoolRequest


def engine_start(pod: LivePod) -> str:
    """Names one start of a pod's engine: the pool's size is settled when the engine starts."""
    engine = next((c for c in pod.containers if c.get("name") == names.ENGINE_CONTAINER), {})
    return f"{pod.uid}/{engine.get('containerID') or engine.get('restartCount', 0)}"


def kv_pool_requests(live: LiveTier) -> tuple[KVPoolRequest, ...]:
    """The ready replicas of the newest revision that have an address."""
    return tuple(
        KVPoolRequest(engine=engine_start(pod), address=str(pod.status["podIP"]), port=names.ENGINE_PORT)
        for pod in live.current_pods
        if pod.ready and pod.status.get("podIP")
    )
