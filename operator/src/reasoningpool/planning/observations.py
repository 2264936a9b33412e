"""What a plan may ask to be observed beyond the watched objects, and what comes back.

A plan states its requests anew each time (`Plan.wanted`), and the next snapshot holds what has come back of them so
far (`Snapshot.observations`). A further kind is a request type with its answer here, and a reader for it
(`reconcile.observe`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from typing_extensions import override

AnswerT = TypeVar("AnswerT")


class Request(Generic[AnswerT]):
    """A wish to observe one thing; `AnswerT` is what may come back."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        """What is observed; the answer is found under this name."""
        raise NotImplementedError


class Observations:
    """Answers by kind of request and subject. Empty where nothing has come back (yet)."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Mapping[type[Request[Any]], Mapping[str, Any]] = MappingProxyType({})) -> None:
        self._answers = answers

    def of(self, kind: type[Request[AnswerT]]) -> Mapping[str, AnswerT]:
        """All answers to requests of one kind, by subject."""
        return cast("Mapping[str, AnswerT]", self._answers.get(kind, {}))


NOTHING_OBSERVED: Final = Observations()


# -- ends of container logs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLog:
    """The end of a container's log; `previous`: of the run before the last restart."""

    container: str
    previous: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLogRequest(Request[ContainerLog]):
    """A container whose log end would explain why its pod fails. Answered by uid of the pod."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    previous: bool

    @property
    @override
    def subject(self) -> str:
        """Uid of the pod."""
        return self.pod_uid


# -- pods that the API server did not create -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCreationFailure:
    """A pod that could not be created, and the API server's message; `pod` is empty where that does not name it."""

    pod: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCreationFailuresRequest(Request[tuple[PodCreationFailure, ...]]):
    """A StatefulSet with fewer pods than it asks for: if this lasts, its FailedCreate events say why."""

    namespace: str
    stateful_set_uid: str

    @property
    @override
    def subject(self) -> str:
        """Uid of the StatefulSet."""
        return self.stateful_set_uid


# -- KV pools of running engines -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPool:
    """The KV pool of one engine as it reports it: `num_blocks` of `block_size` tokens, the null block included."""

    num_blocks: int
    block_size: int

    @property
    def usable_kv_tokens(self) -> int:
        """Tokens that requests can hold: the null block is never handed out."""
        return (self.num_blocks - 1) * self.block_size


class KVPoolProblem(StrEnum):
    """Why an engine's KV pool is not known, closed so that a status does not change with every other try."""

    TIMEOUT = "Timeout"
    UNREACHABLE = "Unreachable"
    BAD_ANSWER = "BadAnswer"
    NO_METRIC = "NoMetric"
    TOO_LARGE = "TooLarge"


# What an engine reports, or why there is no report.
KVPoolReport = KVPool | KVPoolProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPoolRequest(Request[KVPoolReport]):
    """An engine whose KV pool is to be read, once for each start: `engine` names the start, not the pod."""

    engine: str
    address: str
    port: int

    @property
    @override
    def subject(self) -> str:
        """This start of the engine."""
        return self.engine
