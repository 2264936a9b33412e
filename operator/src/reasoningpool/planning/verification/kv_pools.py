"""What running engines say of their KV pools: which replicas to ask, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from reasoningpool.api import names

if TYPE_CHECKING:
    from reasoningpool.planning.live import LivePod, LiveTier


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPool:
    """The KV pool of one engine as it reports it: `num_blocks` of `block_size` tokens, the null block included."""

    num_blocks: int
    block_size: int

    @property
    def usable_kv_tokens(self) -> int:
        """Tokens that requests can hold: the null block is never handed out."""
        return (self.num_blocks - 1) * self.block_size


class ReadingProblem(StrEnum):
    """Why an engine's KV pool is not known, closed so that a status does not change with every other try."""

    TIMEOUT = "Timeout"
    UNREACHABLE = "Unreachable"
    BAD_ANSWER = "BadAnswer"
    NO_METRIC = "NoMetric"
    TOO_LARGE = "TooLarge"


# An engine's answer, or why there is none.
Reading = KVPool | ReadingProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingWanted:
    """A replica whose KV pool is to be read, once for each start of its engine: `key` changes with it."""

    key: str
    address: str
    port: int


def reading_key(pod: LivePod) -> str:
    """Names one start of a pod's engine: the pool's size is settled when the engine starts."""
    engine = next((c for c in pod.containers if c.get("name") == names.ENGINE_CONTAINER), {})
    return f"{pod.uid}/{engine.get('containerID') or engine.get('restartCount', 0)}"


def readings_wanted(live: LiveTier) -> tuple[ReadingWanted, ...]:
    """The ready replicas of the newest revision that have an address."""
    return tuple(
        ReadingWanted(key=reading_key(pod), address=str(pod.status["podIP"]), port=names.ENGINE_PORT)
        for pod in live.current_pods
        if pod.ready and pod.status.get("podIP")
    )
