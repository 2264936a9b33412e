"""The only module that knows kopf: it watches and hands on what it sees, and writes nothing.

`on.event` is the one kind of handler that leaves no finalizer and no annotation on an object. kopf's peering,
its scanning of CRDs and namespaces and its posting of events stay off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import kopf
from kopf._cogs.structs.references import Insights
from typing_extensions import override

from reasoningpool.adapters.kube import Kube
from reasoningpool.adapters.paths import collection_path
from reasoningpool.adapters.watch_response import noting_response
from reasoningpool.objects import Kind, Kinds, ObjectKey
from reasoningpool.objects.kinds import POOL
from reasoningpool.process.heartbeat import Heartbeats
from reasoningpool.reconcile.lists import SELECTOR, Scopes
from reasoningpool.reconcile.pools import Pools
from reasoningpool.reconcile.store import PoolName, Store, pool_of, version_of

log = logging.getLogger(__name__)

_LIST_PAGE: Final = 100
_MAX_BACKOFF_SECONDS: Final = 10.0


class _Backoffs:
    """Delays without end: an API server that is away for long is waited for, not a reason to die."""

    def __iter__(self) -> Iterator[float]:
        delay = 0.5
        while True:
            yield delay
            delay = min(delay * 2, _MAX_BACKOFF_SECONDS)


class _NoDiffs(kopf.DiffBaseStorage):
    """kopf compares each object with the last one it has handled, which is half of its work; nobody asks for it."""

    @override
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    @override
    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    @override
    def store(self, **_: Any) -> None:
        raise AssertionError("kopf must never write to an object")


class _NoProgress(kopf.ProgressStorage):
    """Handlers of ours have no progress to keep."""

    @override
    def fetch(self, **_: Any) -> kopf.ProgressRecord | None:
        return None

    @override
    def store(self, **_: Any) -> None:
        raise AssertionError("kopf must never write to an object")

    @override
    def purge(self, **_: Any) -> None:
        pass

    @override
    def touch(self, **_: Any) -> None:
        pass

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class Watcher:
    """kopf, reduced to lists and watches.

    Optional kinds come and go while it runs, by the same way on which kopf itself follows CRDs: its insights say what
    is to be watched. Not by a scan of kopf's own: that takes rights on all CRDs of the cluster, and kopf ends when a
    watch is refused.
    """

    def __init__(
        self,
        kube: Kube,
        store: Store,
        pools: Pools,
        heartbeats: Heartbeats,
        *,
        namespaces: tuple[str, ...] | None,
        silence: float,
        on_stop: Callable[[], Awaitable[None]],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._kube = kube
        self._store = store
        self._pools = pools
        self._heartbeats = heartbeats
        self._namespaces = namespaces
        self._silence = silence
        self._on_stop = on_stop
        self._on_start = on_start
        self._scopes: tuple[str | None, ...] = namespaces if namespaces is not None else (None,)
        self._registry = kopf.OperatorRegistry()
        self._insights = Insights()
        self._registered: set[Kind] = set()
        self._watched_optional: set[Kind] = set()
        self._running = False

    async def run(self, stop: asyncio.Event) -> None:
        """Watch until `stop` is set. `on_start` is called once Kopf has taken the signals for itself."""
        self.register()
        for kind in (POOL, *self._store.kinds.watched):
            if not kind.optional:
                self._heartbeats.expect(_paths(kind, self._scopes))
        self._running = True
        follower = asyncio.create_task(self._follow(), name="optional kinds found at the start")
        try:
            others = asyncio.all_tasks()
            tasks = await kopf.spawn_tasks(
                registry=self._registry,
                settings=_settings(self._silence, self._store.kinds),
                insights=self._insights,
                standalone=True,
                # Without one Kopf asks who the user is, and a pod's user id has no name.
                identity="reasoningpool",  # type: ignore[arg-type]  # a NewType that Kopf does not export
                clusterwide=self._namespaces is None,
                namespaces=self._namespaces or (),
                stop_flag=stop,
            )
            self._on_start()
            await kopf.run_tasks(tasks, ignored=others)
        finally:
            follower.cancel()

    # -- optional kinds --------------------------------------------------------------------------------------------

    async def start(self, kind: Kind, *, on_refused: Callable[[], None]) -> None:
        """Watch an optional kind, now or as soon as `run` watches."""
        if kind not in self._registered:
            self._register_child(kind)
        self._heartbeats.expect(_paths(kind, self._scopes), on_refused=on_refused)
        self._watched_optional.add(kind)
        if self._running:
            await self._follow()

    async def stop(self, kind: Kind) -> None:
        """End the watch of an optional kind, if there is one."""
        self._heartbeats.forget(_paths(kind, self._scopes))
        self._watched_optional.discard(kind)
        if self._running:
            await self._follow()

    async def _follow(self) -> None:
        """Tell kopf which optional kinds are to be watched."""
        await self._insights.ready_resources.wait()
        async with self._insights.revised:
            watched = self._insights.watched_resources
            watched.difference_update(map(_resource, self._store.kinds.optional))
            watched.update(map(_resource, self._watched_optional))
            self._insights.revised.notify_all()

    # -- handlers --------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Register the handlers of what every cluster has."""
        registry = self._registry

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            await self._kube.relogin()
            beats = self._heartbeats
            session = self._kube.watch_session(
                noting_response(beats.note, beats.note_list, beats.refused, beats.break_off)
            )
            return kopf.AiohttpSession(server=self._kube.host, aiohttp_session=session)

        @kopf.on.cleanup(registry=registry)
        async def cleanup(**_: Any) -> None:
            await self._on_stop()

        @kopf.on.event(POOL.group, POOL.version, POOL.plural, registry=registry)
        async def on_pool(event: kopf.RawEvent, **_: Any) -> None:
            self.pool_event(event["type"], dict(event["object"]))

        for kind in self._store.kinds.watched:
            if not kind.optional:
                self._register_child(kind)

    def _register_child(self, kind: Kind) -> None:
        self._registered.add(kind)

        @kopf.on.event(kind.group, kind.version, kind.plural, id=f"on_{kind.kind.lower()}", registry=self._registry)
        async def on_child(event: kopf.RawEvent, **_: Any) -> None:
            self.child_event(event["type"], dict(event["object"]))

    def pool_event(self, what: str | None, pool: dict[str, Any]) -> None:
        """A pool was seen, changed or deleted."""
        meta = pool["metadata"]
        if what == "DELETED":
            self._pools.gone(PoolName(meta["namespace"], meta["name"]), meta["uid"])
        else:
            self._pools.seen(pool)

    def child_event(self, what: str | None, child: dict[str, Any]) -> None:
        """A child or pod was seen, changed or deleted."""
        if what != "DELETED":
            self._store.upsert(child)
        elif (pool := pool_of(child)) is not None:
            self._store.remove(pool, ObjectKey.of(child), child["metadata"]["uid"], version=version_of(child))


def _paths(kind: Kind, scopes: Scopes) -> list[str]:
    return [collection_path(kind, scope) for scope in scopes]


def _resource(kind: Kind) -> kopf.Resource:
    return kopf.Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        preferred=True,
        namespaced=True,
        verbs=frozenset({"list", "watch"}),
    )


def _settings(silence: float, kinds: Kinds) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.inactivity_timeout = silence
    settings.watching.server_timeout = 300  # an int: it goes into the URL as it is
    settings.watching.connect_timeout = 10.0
    settings.watching.chunk_size = _LIST_PAGE
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 10.0
    settings.networking.error_backoffs = _Backoffs()
    settings.queueing.idle_timeout = 0.5
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.progress_storage = _NoProgress()
    for kind in kinds.watched:
        settings.watching.label_selectors[kind.plural] = SELECTOR
    return settings
