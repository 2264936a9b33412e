"""A discrete-event simulation of replicas under load: who waits, and when answers begin and end.

A replica runs at most `slots` requests at a time; others wait in order of arrival. Running requests share the
replica (processor sharing): with n of them each gets a token every `step_seconds[n]`. The prompt of an admitted
request is computed first, one at a time, and decoding rests meanwhile; its end gives the first token. A request
goes to the replica with the fewest. Preemption is left out: the sizing keeps it below its stated risk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from reasoningpool.requests.log import Floats

_ANSWER: Final = 0  # milestones of a run, in the order they come
_END: Final = 1
_CLOSE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests in order of arrival: seconds, seconds of prompt computation, tokens of thinking and of all output."""

    at: Sequence[float]
    prefill_seconds: Sequence[float]
    thinking: Sequence[int]
    output: Sequence[int]  # at least 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What became of each request, in seconds from its arrival; `per_token` is the mean time between its tokens."""

    queue: Floats
    first_answer_token: Floats
    end: Floats
    per_token: Floats


def simulate(arrivals: Arrivals, *, replicas: int, slots: int, step_seconds: Sequence[float]) -> Times:
    """Serve all requests. `step_seconds[n]` holds for n running requests, n from 1 to `slots`."""
    servers = [_Replica(arrivals, slots, step_seconds) for _ in range(replicas)]
    events: list[tuple[float, int, int]] = []  # time, replica, version; old versions are passed over
    admitted, answered = [0.0] * len(arrivals.at), [0.0] * len(arrivals.at)
    first, ended = [0.0] * len(arrivals.at), [0.0] * len(arrivals.at)
    record = _Record(admitted, first, answered, ended)
    for index, moment in enumerate(arrivals.at):
        while events and events[0][0] <= moment:
            _step(heappop(events), servers, events, record)
        number = min(range(replicas), key=[server.load for server in servers].__getitem__) if replicas > 1 else 0
        server = servers[number]
        server.arrive(index, moment, record)
        heappush(events, (server.next_event(), number, server.version))
    while events:
        _step(heappop(events), servers, events, record)
    at = np.array(arrivals.at)
    decoded = np.maximum(np.array(arrivals.output) - 1, 1)
    return Times(
        queue=np.array(admitted) - at,
        first_answer_token=np.array(answered) - at,
        end=np.array(ended) - at,
        per_token=(np.array(ended) - np.array(first)) / decoded,
    )


@dataclass(frozen=True, slots=True)
class _Record:
    admitted: list[float]
    first: list[float]
    answered: list[float]
    ended: list[float]


def _step(
    event: tuple[float, int, int], servers: list[_Replica], events: list[tuple[float, int, int]], record: _Record
) -> None:
    moment, number, version = event
    server = servers[number]
    if version != server.version:
        return
    server.turn(moment, record)
    following = server.next_event()
    if following < inf:
        heappush(events, (following, number, server.version))


class _Replica:
    """One replica. `steps` counts the decode steps it has made; every running request gets one token a step."""

    __slots__ = (
        "_arrivals", "_decoding", "_free", "_milestones", "_now", "_prefilling", "_ready_at", "_step_seconds", "_steps",
        "_to_prefill", "_waiting", "load", "version",
    )  # fmt: skip

    def __init__(self, arrivals: Arrivals, slots: int, step_seconds: Sequence[float]) -> None:
        self._arrivals = arrivals
        self._step_seconds = step_seconds
        self._free = slots
        self._waiting: deque[int] = deque()
        self._to_prefill: deque[int] = deque()
        self._prefilling = -1
        self._ready_at = 0.0
        self._decoding = 0
        self._milestones: list[tuple[float, int, int]] = []
        self._steps = 0.0
        self._now = 0.0
        self.load = 0
        self.version = 0

    def next_event(self) -> float:
        """When something happens next without a further arrival."""
        if self._prefilling >= 0:
            return self._ready_at
        if self._milestones:
            return self._now + (self._milestones[0][0] - self._steps) * self._step_seconds[self._decoding]
        return inf

    def arrive(self, index: int, moment: float, record: _Record) -> None:
        """A request comes."""
        self._advance(moment)
        self.load += 1
        self.version += 1
        if self._free:
            self._admit(index, record)
        else:
            self._waiting.append(index)

    def turn(self, moment: float, record: _Record) -> None:
        """Prompt computed, or milestones reached."""
        self._advance(moment)
        self.version += 1
        if self._prefilling >= 0:
            self._start_decoding(self._prefilling, record)
            self._prefilling = -1
        else:
            reached = self._steps = max(self._steps, self._milestones[0][0])
            while self._milestones and self._milestones[0][0] <= reached + _CLOSE:
                _, kind, index = heappop(self._milestones)
                if kind == _ANSWER:
                    record.answered[index] = moment
                else:
                    self._decoding -= 1
                    self._finish(index, record)
        self._start_prefill()

    def _advance(self, moment: float) -> None:
        if self._prefilling < 0 and self._decoding:
            self._steps += (moment - self._now) / self._step_seconds[self._decoding]
        self._now = moment

    def _admit(self, index: int, record: _Record) -> None:
        self._free -= 1
        record.admitted[index] = self._now
        self._to_prefill.append(index)
        self._start_prefill()

    def _start_prefill(self) -> None:
        if self._prefilling < 0 and self._to_prefill:
            self._prefilling = self._to_prefill.popleft()
            self._ready_at = self._now + self._arrivals.prefill_seconds[self._prefilling]

    def _start_decoding(self, index: int, record: _Record) -> None:
        record.first[index] = self._now
        left = self._arrivals.output[index] - 1  # the prompt's end gave one
        thinking = min(self._arrivals.thinking[index], left)
        if thinking == 0:
            record.answered[index] = self._now
        if left == 0:
            self._finish(index, record)
            return
        self._decoding += 1
        if thinking:
            heappush(self._milestones, (self._steps + thinking, _ANSWER, index))
        heappush(self._milestones, (self._steps + left, _END, index))

    def _finish(self, index: int, record: _Record) -> None:
        record.ended[index] = self._now
        self._free += 1
        self.load -= 1
        if self._waiting:
            self._admit(self._waiting.popleft(), record)
