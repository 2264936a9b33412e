"""One execution of one plan."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from reasoningpool.adapters.errors import KubeError
from reasoningpool.objects import Manifest, ObjectKey
from reasoningpool.reconcile.memory import Applied, PoolMemory
from reasoningpool.reconcile.shape import shape
from reasoningpool.reconcile.store import PoolName, Store

# Kinds that nobody watches are applied again at about every resync.
TRUST_UNWATCHED_SECONDS: Final = 270.0


@dataclass(slots=True)
class Execution:
    """Whose plan it is, what is remembered of earlier ones, and what came of this one so far."""

    pool: PoolName
    memory: PoolMemory
    transient: list[KubeError] = field(default_factory=list)
    # Second halves of creating StatefulSets, which can wait for other pools' engines.
    deferred: list[tuple[ObjectKey, Callable[[], Awaitable[None]]]] = field(default_factory=list)

    def is_settled(self, store: Store, key: ObjectKey, wanted: bytes) -> bool:
        """Whether this very manifest was applied and the object has not changed since."""
        done = self.memory.applied.get(key)
        if done is None or done.wanted != wanted:
            return False
        if not store.is_watched(key):
            return time.monotonic() - done.at < TRUST_UNWATCHED_SECONDS
        record = store.record(self.pool, key)
        return record is not None and record.uid == done.uid and record.shape == done.shape

    def applied(self, answer: Manifest, wanted: bytes) -> None:
        """Remember what came of an apply."""
        key, uid = ObjectKey.of(answer), answer["metadata"]["uid"]
        self.memory.applied[key] = Applied(wanted, uid, shape(answer), time.monotonic())
