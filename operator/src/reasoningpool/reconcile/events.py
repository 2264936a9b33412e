"""Kubernetes events for what a user must notice: one per thing worth noticing, not one per cycle.

Core events, since `kubectl describe` counts and dates those. Their names are made from what they say, so that a
restarted operator meets its own event and stays silent.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from reasoningpool.adapters.errors import Conflict, Forbidden, KubeError, NotFound, shorten
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.api import names
from reasoningpool.objects import Manifest, ObjectKey, timestamp
from reasoningpool.planning.actions import EventNote

log = logging.getLogger(__name__)

COMPONENT: Final = "reasoningpool"
CONTROLLER: Final = f"{names.GROUP}/operator"
_MAX_REMEMBERED: Final = 10_000
# Something that comes and goes counts up one event, and not more often than this.
_REPEAT_SECONDS: Final = 600.0
_MAX_EVENT_MESSAGE: Final = 1024


@dataclass(slots=True)
class _Sent:
    count: int
    at: float


class Events:
    """Sends notes as events; remembers a bounded number of them. Never fails a cycle."""

    def __init__(self, kube: Kube, *, instance: str, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._kube = kube
        self._instance = instance
        self._max = max_remembered
        self._sent: OrderedDict[tuple[str, str], _Sent] = OrderedDict()
        self._latest: dict[str, frozenset[str]] = {}

    async def send(self, pool: Manifest, notes: tuple[EventNote, ...]) -> None:
        """Tell what is new in `notes`, which are all of the pool's current ones."""
        uid = pool["metadata"]["uid"]
        before = self._latest.get(uid, frozenset())
        if notes:
            self._latest[uid] = frozenset(_name(pool, note) for note in notes)
        else:
            self._latest.pop(uid, None)
        for note in notes:
            name = _name(pool, note)
            sent = self._sent.get((uid, name))
            try:
                if sent is None:
                    await self._first(pool, note, name)
                elif name not in before and time.monotonic() - sent.at >= _REPEAT_SECONDS:
                    await self._again(pool, note, name, sent)
            except KubeError as error:
                leaving = isinstance(error, Forbidden) and error.namespace_terminating
                level = logging.DEBUG if leaving else logging.WARNING
                log.log(level, "the event %s could not be sent: %s", note.reason, error, extra=_extra(pool))
                self._remember(uid, name, 1)  # an event is not worth a second try every few seconds

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._latest.pop(uid, None)
        for key in [key for key in self._sent if key[0] == uid]:
            del self._sent[key]

    async def _first(self, pool: Manifest, note: EventNote, name: str) -> None:
        meta = pool["metadata"]
        now = timestamp(self._kube.now())
        event: Manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": meta["namespace"], "name": name},
            "involvedObject": {
                "apiVersion": pool["apiVersion"],
                "kind": pool["kind"],
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "type": note.type.value,
            "reason": note.reason,
            "action": note.action,
            "message": shorten(note.message, _MAX_EVENT_MESSAGE),
            "source": {"component": COMPONENT},
            "reportingComponent": CONTROLLER,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._kube.create(event, manager=names.FIELD_MANAGER, priority=Priority.BACKGROUND)
        except Conflict as conflict:
            if not conflict.already_exists:
                raise
        self._remember(meta["uid"], name, 1)

    async def _again(self, pool: Manifest, note: EventNote, name: str, sent: _Sent) -> None:
        key = ObjectKey("v1", "Event", pool["metadata"]["namespace"], name)
        patch = {"count": sent.count + 1, "lastTimestamp": timestamp(self._kube.now())}
        try:
            await self._kube.merge(key, patch, manager=names.FIELD_MANAGER, priority=Priority.BACKGROUND)
        except NotFound:  # events live for an hour
            await self._first(pool, note, name)
            return
        self._remember(pool["metadata"]["uid"], name, sent.count + 1)

    def _remember(self, uid: str, name: str, count: int) -> None:
        self._sent[uid, name] = _Sent(count, time.monotonic())
        self._sent.move_to_end((uid, name))
        while len(self._sent) > self._max:
            self._sent.popitem(last=False)


def _name(pool: Manifest, note: EventNote) -> str:
    meta = pool["metadata"]
    said = "\0".join((meta["uid"], note.type.value, note.reason, note.message))
    return f"{meta['name']}.{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}"


def _extra(pool: Manifest) -> dict[str, str]:
    return {"pool_namespace": pool["metadata"]["namespace"], "pool": pool["metadata"]["name"]}
