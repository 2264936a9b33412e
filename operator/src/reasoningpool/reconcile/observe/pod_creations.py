"""Why a StatefulSet's pods are not created: the words of the API server, which only its events keep.

Read, not watched, and only about a StatefulSet that has been short of pods for a while: a cluster has far more
events than a pool has troubles. Without the right to list events everything goes on, less eloquently.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reasoningpool.adapters.errors import Forbidden, KubeError
from reasoningpool.adapters.kube import Kube
from reasoningpool.objects import Manifest
from reasoningpool.planning.diagnosis.pod_creation import refusal_of
from reasoningpool.planning.types import PodRefusal, RefusalsWanted

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

    due: float
    whole_at: datetime | None
    found: tuple[PodRefusal, ...] = ()


class Refusals:
    """What is known of one pool's refused pods."""

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
        self._short: dict[str, _Short] = {}
        self._looked_at: datetime | None = None

    def known(self) -> dict[str, tuple[PodRefusal, ...]]:
        """Refusals by uid of the StatefulSet."""
        return {uid: short.found for uid, short in self._short.items() if short.found}

    def due_in(self) -> float:
        """Seconds until something should be read; infinite when nothing is missing."""
        now = self._clock()
        return min((max(0.0, short.due - now) for short in self._short.values()), default=math.inf)

    async def read(self, wanted: tuple[RefusalsWanted, ...]) -> bool:
        """Read what is due; True when it is news."""
        news = False
        uids = {item.stateful_set_uid for item in wanted}
        for uid in self._short.keys() - uids:
            del self._short[uid]
        for item in wanted:
            short = self._short.setdefault(
                item.stateful_set_uid, _Short(self._clock() + GRACE_SECONDS, self._looked_at)
            )
            if self._clock() >= short.due:
                news = await self._read(item, short) or news
        self._looked_at = self._wall()
        return news

    async def _read(self, item: RefusalsWanted, short: _Short) -> bool:
        try:
            events = await self._kube.warnings_about(item.namespace, item.stateful_set_uid, _REASON, limit=_MOST_EVENTS)
        except KubeError as error:
            wait = FORBIDDEN_AGAIN_SECONDS if isinstance(error, Forbidden) else AGAIN_SECONDS
            short.due = self._clock() + wait
            log.info("why pods are missing cannot be read: %s", error.message)
            return False
        short.due = self._clock() + AGAIN_SECONDS
        found = _newest(events, short.whole_at)
        news, short.found = found != short.found, found
        return news


def _newest(events: Iterable[Manifest], whole_at: datetime | None) -> tuple[PodRefusal, ...]:
    """The last refusal of each pod; those before the StatefulSet was last seen whole are history."""
    latest: dict[str, tuple[datetime, PodRefusal]] = {}
    for event in events:
        at, refusal = _last_seen(event), refusal_of(str(event.get("message", "")))
        if at is None or (whole_at is not None and at < whole_at - _SKEW):
            continue
        known = latest.get(refusal.pod)
        if known is None or known[0] <= at:
            latest[refusal.pod] = at, refusal
    return tuple(latest[pod][1] for pod in sorted(latest))


def _last_seen(event: Manifest) -> datetime | None:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    told = [datetime.fromisoformat(text) for text in times if text]
    return max(told, default=None)
