"""One protocol for everything that is read because a plan asked for it, and the readers behind it, by kind of request.

All that a reader knows may be lost at any time; then it reads again what the next plan asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from reasoningpool.planning.observations import Observations, Request
from reasoningpool.reconcile.store import PoolName

RequestT = TypeVar("RequestT", bound=Request[Any])
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Reader(Protocol[RequestT, AnswerT_co]):
    """Reads one kind of thing for all pools. Nothing it meets on the way raises."""

    @property
    def kind(self) -> type[RequestT]:
        """The requests that it answers."""
        ...

    def want(self, pool: PoolName, requests: tuple[RequestT, ...]) -> None:
        """Take in what the pool's newest plan asks for, which replaces what it asked for before; returns at once."""
        ...

    async def read(self, pool: PoolName) -> bool:
        """Read what is due within a cycle; True when a plan would now see something else.

        A reader that takes its time reads beside the cycles instead, and wakes the pool when there is news.
        """
        ...

    def known(self, pool: PoolName) -> Mapping[str, AnswerT_co]:
        """What has come back, by subject of the request."""
        ...

    def due_in(self, pool: PoolName) -> float:
        """Seconds until `read` has something to do; infinite when nothing calls for it."""
        ...

    def forget(self, pool: PoolName) -> None:
        """The pool is gone."""
        ...

    async def stop(self) -> None:
        """End what runs beside the cycles."""
        ...


class Readers:
    """The readers of a process. A request that none of them answers stays unanswered."""

    def __init__(self, *readers: Reader[Any, Any]) -> None:
        self._readers = readers

    def want(self, pool: PoolName, requests: Iterable[Request[Any]]) -> None:
        """Hand each reader its part of what the pool's newest plan asks for."""
        wanted = tuple(requests)
        for reader in self._readers:
            reader.want(pool, tuple(request for request in wanted if isinstance(request, reader.kind)))

    async def read(self, pool: PoolName) -> bool:
        """Read what is due; True when a plan would now see something else."""
        news = [await reader.read(pool) for reader in self._readers]  # each of them, whatever the first has found
        return any(news)

    def known(self, pool: PoolName) -> Observations:
        """What has come back."""
        return Observations({reader.kind: reader.known(pool) for reader in self._readers})

    def due_in(self, pool: PoolName) -> float:
        """Seconds until something should be read within a cycle; infinite at rest."""
        return min((reader.due_in(pool) for reader in self._readers), default=math.inf)

    def forget(self, pool: PoolName) -> None:
        """The pool is gone."""
        for reader in self._readers:
            reader.forget(pool)

    async def stop(self) -> None:
        """End what runs beside the cycles."""
        for reader in self._readers:
            await reader.stop()
