"""Reads the ends of logs that planning asks for, each once for as long as it says what it said."""

from __future__ import annotations

import logging
import time
from typing import Final

from reasoningpool.adapters.errors import KubeError
from reasoningpool.adapters.kube import Kube
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.types import LogWanted, PodLog
from reasoningpool.reconcile.apply.writer import extra
from reasoningpool.reconcile.memory import LogRead, PoolMemory
from reasoningpool.reconcile.store import PoolName, Store

log = logging.getLogger(__name__)

_LINES: Final = 60
# Counted from the first of the lines, so it must be generous: the telling line is near the last.
_BYTES: Final = 65_536
# A crash-looping container writes a new log at every restart; reading each of them says nothing new.
_AGAIN_SECONDS: Final = 30.0
# A log that could not be read, or had nothing in it yet: the kubelet swaps logs while a container restarts.
_EMPTY_AGAIN_SECONDS: Final = 3.0


async def read_logs(
    kube: Kube, store: Store, pool: PoolName, memory: PoolMemory, wanted: tuple[LogWanted, ...]
) -> bool:
    """Read what is wanted and not known into the memory; True when something of it is news."""
    news = False
    for uid, read in tuple(memory.logs.items()):
        if _is_outdated(store, pool, read):
            del memory.logs[uid]
    for item in wanted:
        known = memory.logs.get(item.pod_uid)
        if known is not None and (known.log.container, known.log.previous) == (item.container, item.previous):
            continue
        pod = ObjectKey("v1", "Pod", item.namespace, item.pod)
        record = store.record(pool, pod)
        text = await _log_end(kube, pool, item)
        log_end = PodLog(container=item.container, previous=item.previous, text=text)
        news = news or known is None or known.log != log_end
        version = record.version if record is not None else 0
        memory.logs[item.pod_uid] = LogRead(pod, item.pod_uid, version, time.monotonic(), log_end)
    return news


def _is_outdated(store: Store, pool: PoolName, read: LogRead) -> bool:
    record = store.record(pool, read.pod)
    if record is None or record.uid != read.uid:
        return True
    again = _AGAIN_SECONDS if read.log.text else _EMPTY_AGAIN_SECONDS
    return record.version != read.pod_version and time.monotonic() - read.at >= again


async def _log_end(kube: Kube, pool: PoolName, item: LogWanted) -> str:
    try:
        return await kube.pod_log(
            item.namespace, item.pod, item.container, previous=item.previous, lines=_LINES, limit_bytes=_BYTES
        )
    except KubeError as error:  # a container that never ran has no log, and that is no fault of ours
        log.debug("no log of %s/%s: %s", item.pod, item.container, error.message, extra=extra(pool))
        return ""
