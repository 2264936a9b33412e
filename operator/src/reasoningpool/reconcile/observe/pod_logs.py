"""Reads the ends of container logs, each once for as long as its pod stays as it was."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from reasoningpool.adapters.errors import KubeError
from reasoningpool.adapters.kube import Kube
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.observations import ContainerLog, ContainerLogRequest
from reasoningpool.reconcile.store import PoolName, Store, log_fields

log = logging.getLogger(__name__)

_LINES: Final = 60
# Counted from the first of the lines, so it must be generous: the telling line is near the last.
_BYTES: Final = 65_536
# A crash-looping container writes a new log at every restart; reading each of them says nothing new.
_AGAIN_SECONDS: Final = 30.0
# A log that could not be read, or had nothing in it yet: the kubelet swaps logs while a container restarts.
_EMPTY_AGAIN_SECONDS: Final = 3.0


@dataclass(slots=True)
class _Read:
    """The end of a log, and the pod's resourceVersion it was read at."""

    pod: ObjectKey
    uid: str
    pod_version: int
    at: float
    log: ContainerLog


@dataclass(slots=True)
class _Pool:
    requests: tuple[ContainerLogRequest, ...] = ()
    read: dict[str, _Read] = field(default_factory=dict)


class ContainerLogReader:
    """Reads within the cycle. What was read is kept until its pod has changed, whether it is asked for or not."""

    kind: Final = ContainerLogRequest

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._pools: dict[PoolName, _Pool] = {}

    def want(self, pool: PoolName, requests: tuple[ContainerLogRequest, ...]) -> None:
        """Remember what to read; forget what its pod has outlived."""
        state = self._pools.get(pool, _Pool())
        state.requests = requests
        for uid, read in tuple(state.read.items()):
            if self._is_outdated(pool, read):
                del state.read[uid]
        if state.requests or state.read:
            self._pools[pool] = state
        else:
            self._pools.pop(pool, None)

    async def read(self, pool: PoolName) -> bool:
        """Read what is asked for and not known; True when something of it is news."""
        state = self._pools.get(pool)
        if state is None:
            return False
        news = False
        for request in state.requests:
            known = state.read.get(request.subject)
            if known is not None and (known.log.container, known.log.previous) == (request.container, request.previous):
                continue
            pod = ObjectKey("v1", "Pod", request.namespace, request.pod)
            record = self._store.record(pool, pod)
            text = await self._log_end(pool, request)
            log_end = ContainerLog(container=request.container, previous=request.previous, text=text)
            news = news or known is None or known.log != log_end
            version = record.version if record is not None else 0
            state.read[request.subject] = _Read(pod, request.pod_uid, version, time.monotonic(), log_end)
        return news

    def known(self, pool: PoolName) -> Mapping[str, ContainerLog]:
        """Log ends by uid of the pod."""
        state = self._pools.get(pool)
        return {uid: read.log for uid, read in state.read.items()} if state is not None else {}

    def due_in(self, _pool: PoolName) -> float:
        """Nothing by the clock: a pod that changes wakes its pool."""
        return math.inf

    def forget(self, pool: PoolName) -> None:
        """The pool is gone."""
        self._pools.pop(pool, None)

    async def stop(self) -> None:
        """Nothing runs beside the cycles."""

    def _is_outdated(self, pool: PoolName, read: _Read) -> bool:
        record = self._store.record(pool, read.pod)
        if record is None or record.uid != read.uid:
            return True
        again = _AGAIN_SECONDS if read.log.text else _EMPTY_AGAIN_SECONDS
        return record.version != read.pod_version and time.monotonic() - read.at >= again

    async def _log_end(self, pool: PoolName, request: ContainerLogRequest) -> str:
        try:
            return await self._kube.pod_log(
                request.namespace,
                request.pod,
                request.container,
                previous=request.previous,
                lines=_LINES,
                limit_bytes=_BYTES,
            )
        except KubeError as error:  # a container that never ran has no log, and that is no fault of ours
            log.debug("no log of %s/%s: %s", request.pod, request.container, error.message, extra=log_fields(pool))
            return ""
