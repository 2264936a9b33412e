"""The children and pods of all pools as last seen, fed by watches, by lists, and by the answers to our own applies.

Objects are kept as compressed JSON: whole, since planning decides what it needs, and small, since a thousand
pools have some ten thousand of them.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reasoningpool.api import names
from reasoningpool.objects import KINDS, Availability, Kind, Kinds, Manifest, ObjectKey
from reasoningpool.objects.kinds import POD
from reasoningpool.reconcile.ownership import is_entangled
from reasoningpool.reconcile.shape import shape

# An answer to an apply may arrive after the watch has already said that the object is gone. What is newer than the
# event that said so proves the contrary: a watch with a selector reports an object that lost its labels as deleted.
_REMEMBER_DELETED: Final = 4096
_REMEMBER_DELETED_SECONDS: Final = 120.0


class PoolName(NamedTuple):
    """A pool by name; which uid bears the name is found out by reading it."""

    namespace: str
    name: str


def log_fields(pool: PoolName) -> dict[str, str]:
    """The fields of a log line about this pool."""
    return {"pool_namespace": pool.namespace, "pool": pool.name}


@dataclass(slots=True)
class _Tombstone:
    version: float
    at: float


@dataclass(slots=True)
class Record:
    """What is kept of one object."""

    uid: str
    version: int
    shape: bytes
    replicas: int | None
    deleting: bool
    # See ownership.is_entangled.
    entangled: bool
    packed: bytes
    seen_at: float

    def manifest(self) -> Manifest:
        """The object itself, without managedFields."""
        return unpack(self.packed)


class Store:
    """Objects by pool. `on_change` is told the pool and the kind of each object that was added, changed or removed."""

    def __init__(self, on_change: Callable[[PoolName, str], None] | None = None, kinds: Kinds = KINDS) -> None:
        self.kinds = kinds
        self._availability = dict.fromkeys(kinds.optional, Availability.NOT_INSTALLED)
        self._pools: dict[PoolName, dict[ObjectKey, Record]] = {}
        self._homes: dict[ObjectKey, PoolName] = {}
        self._deleted: OrderedDict[str, _Tombstone] = OrderedDict()
        self._on_change = on_change or (lambda _pool, _kind: None)
        self.synced = False

    def upsert(self, live: Mapping[str, Any], *, notify: bool = True, pool: PoolName | None = None) -> bool:
        """Take in an object as seen; False when it was known already, is older than what is known, or not ours.

        `notify=False` is for the answers to our own applies, which are no news to the pool that sent them. `pool` is
        for an object that was read and is known to be that pool's, whatever labels it has lost.
        """
        read, pool, meta = pool is not None, pool or pool_of(live), live["metadata"]
        key, uid, version = ObjectKey.of(live), meta["uid"], version_of(live)
        home = self._homes.get(key)
        known = None if home is None else self._pools[home][key]
        if known is not None and version <= known.version:
            return False
        grave = self._deleted.get(uid)
        # What is still there at the very version of the event has only lost its labels.
        if grave is not None and (version < grave.version or (version == grave.version and not read)):
            return False
        if home is not None and home != pool:
            self._forget(home, key)  # somebody took its label off, or gave it another
        if pool is None:
            return home is not None
        self._deleted.pop(uid, None)
        record = Record(
            uid=uid,
            version=version,
            shape=shape(live),
            replicas=(live.get("spec") or {}).get("replicas") if key.kind == "StatefulSet" else None,
            deleting=bool(meta.get("deletionTimestamp")),
            entangled=key.kind == "StatefulSet" and is_entangled(live),
            packed=pack(live),
            seen_at=time.monotonic(),
        )
        self._pools.setdefault(pool, {})[key] = record
        self._homes[key] = pool
        if notify:
            self._on_change(pool, key.kind)
        return True

    def remove(self, pool: PoolName, key: ObjectKey, uid: str, *, version: int | None = None) -> bool:
        """Forget an object that is gone; an object of the same name with another uid stays.

        `version` is the resourceVersion at which it was seen to be gone from what is selected; something newer with
        its uid is believed again. None: it is gone for good.
        """
        self._remember_deleted(uid, math.inf if version is None else version)
        known = self._pools.get(pool, {}).get(key)
        if known is None or known.uid != uid or (version is not None and version < known.version):
            return False
        self._forget(pool, key)
        return True

    def _forget(self, pool: PoolName, key: ObjectKey) -> None:
        objects = self._pools[pool]
        del objects[key], self._homes[key]
        if not objects:
            del self._pools[pool]
        self._on_change(pool, key.kind)

    def record(self, pool: PoolName, key: ObjectKey) -> Record | None:
        """What is known of one object."""
        return self._pools.get(pool, {}).get(key)

    @property
    def availability(self) -> Mapping[Kind, Availability]:
        """Of each optional kind, as last found out."""
        return self._availability

    def set_availability(self, kind: Kind, availability: Availability) -> None:
        """Remember it; objects of a kind that is no longer served are gone."""
        self._availability = self._availability | {kind: availability}
        if availability is Availability.NOT_INSTALLED:
            for pool, key, record in tuple(self.known(kind)):
                self.remove(pool, key, record.uid)

    def is_fed(self, kind: Kind) -> bool:
        """Whether changes of this kind's objects reach the store by themselves."""
        return kind.watched and self._availability.get(kind, Availability.AVAILABLE) is Availability.AVAILABLE

    def is_watched(self, key: ObjectKey) -> bool:
        """Whether changes of this object reach the store by themselves."""
        return self.is_fed(self.kinds.of(key))

    def is_behind(self, live: Mapping[str, Any]) -> bool:
        """Whether this object, of which the metadata is enough, is newer than what is known of it."""
        key, version = ObjectKey.of(live), version_of(live)
        home = self._homes.get(key)
        if home is None:
            return pool_of(live) is not None
        return self._pools[home][key].version < version

    def children(self, pool: PoolName) -> tuple[Manifest, ...]:
        """Every object of the pool but its pods, in a stable order."""
        return tuple(self._manifests(pool, pods=False))

    def pods(self, pool: PoolName) -> tuple[Manifest, ...]:
        """The pool's pods, in a stable order."""
        return tuple(self._manifests(pool, pods=True))

    def known(self, kind: Kind) -> Iterator[tuple[PoolName, ObjectKey, Record]]:
        """Everything known of one kind."""
        for pool, objects in self._pools.items():
            for key, record in objects.items():
                if key.kind == kind.kind and key.api_version == kind.api_version:
                    yield pool, key, record

    def count(self) -> int:
        """How many objects are kept."""
        return sum(len(objects) for objects in self._pools.values())

    def _manifests(self, pool: PoolName, *, pods: bool) -> Iterable[Manifest]:
        objects = self._pools.get(pool, {})
        return (objects[key].manifest() for key in sorted(objects) if (key.kind == POD.kind) is pods)

    def _remember_deleted(self, uid: str, version: float) -> None:
        now = time.monotonic()
        known = self._deleted.pop(uid, None)
        self._deleted[uid] = _Tombstone(version if known is None else max(version, known.version), now)
        while self._deleted:
            oldest = next(iter(self._deleted))
            if len(self._deleted) <= _REMEMBER_DELETED and now - self._deleted[oldest].at < _REMEMBER_DELETED_SECONDS:
                break
            del self._deleted[oldest]


def pool_of(live: Mapping[str, Any]) -> PoolName | None:
    """The pool whose label the object carries."""
    meta = live["metadata"]
    name = (meta.get("labels") or {}).get(names.LABEL_POOL)
    return PoolName(meta.get("namespace") or "", name) if name else None


def version_of(live: Mapping[str, Any]) -> int:
    """An object's resourceVersion as a number that grows."""
    # They are decimal numbers (promised by Kubernetes since 1.35, true of etcd ever since).
    try:
        return int(live["metadata"].get("resourceVersion") or 0)
    except ValueError:
        return time.monotonic_ns()


def pack(live: Mapping[str, Any]) -> bytes:
    """An object without its managedFields, small."""
    meta = {field: value for field, value in live["metadata"].items() if field != "managedFields"}
    return zlib.compress(json.dumps({**live, "metadata": meta}, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> Manifest:
    """What was packed."""
    loaded: Manifest = json.loads(zlib.decompress(packed))
    return loaded
