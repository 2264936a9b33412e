"""Why a StatefulSet's pods are not created: the API server's messages, which only its events keep.

Read, not watched, and only about a StatefulSet that has been short of pods for a while: a cluster has far more
events than a pool has troubles. Without the right to list events, status only says where to look.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from reasoningpool.adapters.errors import Forbidden, KubeError
from reasoningpool.adapters.kube import Kube
from reasoningpool.objects import Manifest
from reasoningpool.planning.diagnosis.pod_creation import creation_failure
from reasoningpool.planning.observations import PodCreationFailure, PodCreationFailuresRequest
from reasoningpool.reconcile.store import PoolName

log = logging.getLogger(__name__)

_REASON: Final = "FailedCreate"
# A healthy StatefulSet has its pods within a second or two.
GRACE_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 30.0
# Rights are granted by a person; asking more often would only fill the audit log.
FORBIDDEN_AGAIN_SECONDS: Final = 300.0
# One event per pod and message, and the StatefulSet's clock is another one.
_MOST_EVENTS: Final = 100
_SKEW: Final = timedelta(seconds=5)


@dataclass(slots=True)
class _Short:
    """A StatefulSet that lacks pods: when to read next, since when (by the API server) events count, what was found."""

    request: PodCreationFailuresRequest
    due: float
    whole_at: datetime | None
    found: tuple[PodCreationFailure, ...] = ()


@dataclass(slots=True)
class _Pool:
    """The StatefulSets of a pool that lack pods, by uid. All others were whole when the last plan was made."""

    short: dict[str, _Short] = field(default_factory=dict)
    planned_at: datetime | None = None


class PodCreationFailureReader:
    """Reads within the cycle, when it is due."""

    kind: Final = PodCreationFailuresRequest

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._wall = wall or kube.now
        self._pools: dict[PoolName, _Pool] = {}

    def want(self, pool: PoolName, requests: tuple[PodCreationFailuresRequest, ...]) -> None:
        """These StatefulSets lack pods, and no others."""
        state = self._pools.setdefault(pool, _Pool())
        wanted = {request.subject: request for request in requests}
        for uid in state.short.keys() - wanted.keys():
            del state.short[uid]
        for uid, request in wanted.items():
            if uid not in state.short:
                state.short[uid] = _Short(request, self._clock() + GRACE_SECONDS, state.planned_at)
        state.planned_at = self._wall()

    async def read(self, pool: PoolName) -> bool:
        """Read what is due; True when it is news."""
        news = [await self._read(short) for short in self._short_of(pool) if self._clock() >= short.due]
        return any(news)

    def known(self, pool: PoolName) -> Mapping[str, tuple[PodCreationFailure, ...]]:
        """The newest failure of each pod, by uid of the StatefulSet."""
        return {short.request.subject: short.found for short in self._short_of(pool) if short.found}

    def due_in(self, pool: PoolName) -> float:
        """Seconds until something should be read; infinite when no pod is missing."""
        now = self._clock()
        return min((max(0.0, short.due - now) for short in self._short_of(pool)), default=math.inf)

    def forget(self, pool: PoolName) -> None:
        """The pool is gone."""
        self._pools.pop(pool, None)

    async def stop(self) -> None:
        """Nothing runs beside the cycles."""

    def _short_of(self, pool: PoolName) -> tuple[_Short, ...]:
        state = self._pools.get(pool)
        return tuple(state.short.values()) if state is not None else ()

    async def _read(self, short: _Short) -> bool:
        request = short.request
        try:
            events = await self._kube.warnings_about(
                request.namespace, request.stateful_set_uid, _REASON, limit=_MOST_EVENTS
            )
        except KubeError as error:
            wait = FORBIDDEN_AGAIN_SECONDS if isinstance(error, Forbidden) else AGAIN_SECONDS
            short.due = self._clock() + wait
            log.info("could not list the events about missing pods: %s", error.message)
            return False
        short.due = self._clock() + AGAIN_SECONDS
        found = _newest(events, short.whole_at)
        news, short.found = found != short.found, found
        return news


def _newest(events: Iterable[Manifest], whole_at: datetime | None) -> tuple[PodCreationFailure, ...]:
    """The last failure of each pod; those before the StatefulSet was last seen whole are history."""
    latest: dict[str, tuple[datetime, PodCreationFailure]] = {}
    for event in events:
        at, failure = _last_seen(event), creation_failure(str(event.get("message", "")))
        if at is None or (whole_at is not None and at < whole_at - _SKEW):
            continue
        known = latest.get(failure.pod)
        if known is None or known[0] <= at:
            latest[failure.pod] = at, failure
    return tuple(latest[pod][1] for pod in sorted(latest))


def _last_seen(event: Manifest) -> datetime | None:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    told = [datetime.fromisoformat(text) for text in times if text]
    return max(told, default=None)
