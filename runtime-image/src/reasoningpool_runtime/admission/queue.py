"""Requests that wait for admission: first come first served within a few priorities, and bounded.

A request that waits rises by one priority per `aging_seconds` and then stands before all that came later, so no request
waits for ever behind more urgent ones. Nothing overtakes the head of the queue, so large requests are not starved by
small ones that fit sooner.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reasoningpool_runtime.admission.ledger import Share
from reasoningpool_runtime.admission.types import AdmissionConfig, Reason


@dataclass(slots=True, eq=False)
class Waiting:
    """A request in the queue; `handle` is the caller's."""

    share: Share
    since: float
    number: int = 0
    handle: Any = field(default=None, repr=False)


class WaitingQueue:
    """Bounded by requests, by prompt tokens and by the time of each."""

    def __init__(self, config: AdmissionConfig) -> None:
        self.config = config
        self._levels: dict[int, OrderedDict[int, Waiting]] = {}
        self._arrivals = 0
        self._count = 0
        self.tokens = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Waiting]:
        for level in self._levels.values():
            yield from level.values()

    def configure(self, config: AdmissionConfig) -> None:
        """Other bounds from now on; what waits stays, at the last priority if its own is gone."""
        waiting = sorted(self, key=lambda each: each.number)
        self.config = config
        self._levels = {}
        for each in waiting:
            self._levels.setdefault(self._level(each.share.request.priority), OrderedDict())[each.number] = each

    def refusal(self, prompt_tokens: int) -> Reason | None:
        """Why a request cannot join, if it cannot."""
        if self._count >= self.config.max_queued_requests:
            return Reason.QUEUE_FULL
        if self.tokens + prompt_tokens > self.config.max_queued_tokens:
            return Reason.QUEUE_TOKENS
        return None

    def push(self, waiting: Waiting) -> None:
        """Join at the end of the request's priority."""
        self._arrivals += 1
        waiting.number = self._arrivals
        level = self._level(waiting.share.request.priority)
        self._levels.setdefault(level, OrderedDict())[waiting.number] = waiting
        self._count += 1
        self.tokens += waiting.share.request.prompt_tokens

    def remove(self, waiting: Waiting) -> bool:
        """Leave the queue; False if it had left before."""
        for level in self._levels.values():
            if level.pop(waiting.number, None) is not None:
                self._count -= 1
                self.tokens -= waiting.share.request.prompt_tokens
                return True
        return False

    def head(self, now: float) -> Waiting | None:
        """The next to be admitted."""
        firsts = [(level, next(iter(each.values()))) for level, each in self._levels.items() if each]
        if not firsts:
            return None
        return min(firsts, key=lambda first: (self._aged(first[0], first[1], now), first[1].number))[1]

    def expired(self, now: float) -> list[Waiting]:
        """Those that have waited too long; they stay until they are removed."""
        return [each for each in self if now - each.since >= self.config.max_wait_seconds]

    def oldest_wait_seconds(self, now: float) -> float:
        """0 when nobody waits."""
        firsts = [next(iter(level.values())).since for level in self._levels.values() if level]
        return now - min(firsts) if firsts else 0.0

    def _level(self, priority: int) -> int:
        return min(max(priority, 0), self.config.priorities - 1)

    def _aged(self, level: int, waiting: Waiting, now: float) -> int:
        return max(0, level - int((now - waiting.since) / self.config.aging_seconds))
