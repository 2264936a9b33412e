"""The operator as a process: connect, lead, list, watch, and leave in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import uuid
from collections.abc import Coroutine
from typing import Any, Final

from reasoningpool.adapters.engine_metrics import EngineMetrics
from reasoningpool.adapters.kube import Kube
from reasoningpool.adapters.login import NoCluster, connect
from reasoningpool.objects import KINDS, Kinds
from reasoningpool.process.ending import Ending
from reasoningpool.process.handlers import Watcher
from reasoningpool.process.health import Health, PortTaken, State
from reasoningpool.process.heartbeat import Heartbeats
from reasoningpool.process.lease import Lease
from reasoningpool.process.settings import Settings
from reasoningpool.reconcile.apply.executor import Executor
from reasoningpool.reconcile.events import Events
from reasoningpool.reconcile.observe.kv_pools import KVPoolReader
from reasoningpool.reconcile.observe.pod_creations import PodCreationFailureReader
from reasoningpool.reconcile.observe.pod_logs import ContainerLogReader
from reasoningpool.reconcile.observe.readers import Readers
from reasoningpool.reconcile.observer import Observer
from reasoningpool.reconcile.optional_kinds import OptionalKinds
from reasoningpool.reconcile.pool_task import FailurePlanner, Planner, SharedParts
from reasoningpool.reconcile.pools import Pools
from reasoningpool.reconcile.sleeper import Timing
from reasoningpool.reconcile.store import PoolName, Store

log = logging.getLogger(__name__)

EXIT_STOPPED: Final = 0
EXIT_FAILED: Final = 1
EXIT_NO_CLUSTER: Final = 2
# Kopf's own ways out have no bound: it waits for watches that are being opened, and for handlers.
_WATCHER_SECONDS: Final = 10.0


def run(settings: Settings, *, planner: Planner, plan_failure: FailurePlanner) -> int:
    """Run until a signal comes (0), leadership is lost or watching fails (1); the exit code.

    A process that does not stop within `END_SECONDS` of any of these is ended with code 3.
    """
    operator = Operator(settings, planner=planner, plan_failure=plan_failure)
    try:
        return asyncio.run(operator.main())
    except NoCluster as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        return EXIT_NO_CLUSTER
    except PortTaken as error:
        log.error("%s", error)  # noqa: TRY400 - the same
        return EXIT_FAILED
    finally:
        operator.ending.over()


class Operator:
    """One process's parts and the order in which they start and stop."""

    def __init__(
        self, settings: Settings, *, planner: Planner, plan_failure: FailurePlanner, kinds: Kinds = KINDS
    ) -> None:
        self._settings = settings
        self._kinds = kinds
        self._planner = planner
        self._plan_failure = plan_failure
        self._stop = asyncio.Event()
        self.ending = Ending()
        self._heartbeats = Heartbeats(settings.watch_silence_seconds)
        self._lease: Lease | None = None
        self._store: Store | None = None
        self._pools: Pools | None = None
        self._engines = EngineMetrics()
        self._readers: Readers | None = None
        self._observer: Observer | None = None
        self._optional: OptionalKinds | None = None
        self._leading = False
        self.health = Health(live=self._live, ready=self._ready)

    async def main(self) -> int:
        """The whole life of the process."""
        settings = self._settings
        api, relogin = await connect(kubeconfig=settings.kubeconfig or None, context=settings.context or None)
        kube = Kube(api, relogin, concurrency=settings.concurrency, kinds=self._kinds)
        kube.write_only_if(self._may_write)
        self._take_signals()
        try:
            if settings.health_port >= 0:
                await self.health.start(settings.health_host, settings.health_port)
            if not await self._lead(kube):
                return EXIT_STOPPED
            return await self._serve(kube)
        finally:
            await self._shut_down()
            log.info("stopped; API requests sent: %s", _counts(kube))
            await kube.close()

    async def _lead(self, kube: Kube) -> bool:
        settings = self._settings
        if settings.leader_election:
            self._lease = Lease(
                kube,
                namespace=settings.lease_home(),
                name=settings.lease_name,
                identity=f"{settings.own_name()}_{uuid.uuid4().hex[:8]}",
            )
            if not await self._unless_stopped(self._lease.acquire()):
                return False
        self._leading = True
        return True

    async def _serve(self, kube: Kube) -> int:
        settings = self._settings
        store = Store(self._on_change, self._kinds)
        readers = self._readers = Readers(
            ContainerLogReader(kube, store),
            PodCreationFailureReader(kube),
            KVPoolReader(self._engines.kv_pool, self._on_news),
        )
        shared = SharedParts(
            kube=kube,
            store=store,
            executor=Executor(kube, store, may_write=self._may_write),
            events=Events(kube, instance=settings.own_name()),
            planner=self._planner,
            plan_failure=self._plan_failure,
            readers=readers,
            may_write=self._may_write,
            timing=Timing(resync=settings.resync_seconds),
        )
        pools = self._pools = Pools(shared)
        observer = self._observer = Observer(kube, store, pools, settings.namespaces or None)
        self._heartbeats.on_gap = observer.gap
        self._store = store
        watcher = Watcher(
            kube,
            store,
            pools,
            self._heartbeats,
            namespaces=settings.namespaces or None,
            silence=settings.watch_silence_seconds,
            on_stop=self._shut_down,
            on_start=self._take_signals,
        )
        scopes = settings.namespaces or (None,)

        def on_optional_kind() -> None:
            observer.gap()  # what was deleted after its list and before its watch began
            pools.wake_all()

        optional = self._optional = OptionalKinds(kube, store, watcher, scopes, on_change=on_optional_kind)
        keeper = asyncio.create_task(self._keep_leading(), name="lease")
        followers: list[asyncio.Task[None]] = []
        try:
            if not await self._unless_stopped(observer.first_list(optional), keeper):
                return EXIT_FAILED if keeper.done() else EXIT_STOPPED
            # Before kopf starts: it cancels every task that is younger than itself when it ends.
            followers += (
                asyncio.create_task(observer.run(settings.compare_seconds), name="comparer"),
                asyncio.create_task(optional.run(), name="optional kinds"),
            )
            watching = asyncio.create_task(watcher.run(self._stop), name="watcher")
            stopped = asyncio.create_task(self._stop.wait(), name="stop")
            deaf = asyncio.create_task(self._heartbeats.wait_dead(), name="deaf")
            await asyncio.wait({watching, keeper, stopped, deaf}, return_when=asyncio.FIRST_COMPLETED)
            lost = keeper.done() and self._leading  # not leading any more: we gave it up ourselves
            broken = self._heartbeats.broken or (", ".join(self._heartbeats.dead()) if deaf.done() else "")
            if broken:
                log.error("watching ended, so the operator starts anew: %s", broken)
            self._begin_to_stop()
            stopped.cancel()
            deaf.cancel()
            await asyncio.wait({watching}, timeout=_WATCHER_SECONDS)
            if watching.done():
                await watching
            else:
                log.error("the watches did not end within %g s; leaving them", _WATCHER_SECONDS)
                return EXIT_FAILED
        except Exception as error:  # noqa: BLE001 - kopf has logged where it came from
            log.error("watching failed: %s", error)  # noqa: TRY400
            return EXIT_FAILED
        else:
            return EXIT_FAILED if lost or broken else EXIT_STOPPED
        finally:
            for task in (keeper, *followers):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _keep_leading(self) -> None:
        if self._lease is None:
            await asyncio.Event().wait()
        else:
            await self._lease.keep()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None], *others: asyncio.Task[None]) -> bool:
        """Whether `work` was done before a signal came (or one of the others ended)."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stopped, *others}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            await task
            return True
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False

    def _take_signals(self) -> None:
        """Signals are ours to handle. Kopf takes them for itself when it starts, and then this is done again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        self.ending.begin()
        self._stop.set()

    async def _shut_down(self) -> None:
        """Stop writing first, then let go of the Lease, then of the port. May be called twice."""
        self.ending.begin()
        self._leading = False
        if self._pools is not None:
            await self._pools.stop()
        if self._readers is not None:
            await self._readers.stop()
        await self._engines.close()
        if self._lease is not None:
            await self._lease.release()
        await self.health.stop()

    # -- what others ask -------------------------------------------------------------------------------------------

    def _may_write(self) -> bool:
        return self._leading and (self._lease is None or self._lease.held)

    def _on_change(self, pool: PoolName, _kind: str) -> None:
        if self._pools is not None:
            self._pools.wake(pool)

    def _on_news(self, pool: PoolName) -> None:
        if self._pools is not None:
            self._pools.wake(pool)

    def _live(self) -> State:
        dead = self._heartbeats.dead()
        return State(good=False, text="no events from " + ", ".join(dead)) if dead else State(good=True, text="ok")

    def _ready(self) -> State:
        if not self._leading:
            holder = self._lease.holder if self._lease is not None else ""
            return State(good=True, text=f"standby; leader is {holder or 'not known yet'}")
        if self._store is None or not self._store.synced:
            return State(good=False, text=self._observer.trouble if self._observer is not None else "starting")
        unread = self._optional.forbidden() if self._optional is not None else ()
        without = "".join(f"; may not read {kind}" for kind in unread)
        return State(good=True, text=f"leading; {len(self._pools or ())} pools, {self._store.count()} objects{without}")


def _counts(kube: Kube) -> str:
    return ", ".join(f"{verb} {kind}: {count}" for (verb, kind), count in kube.requests.most_common()) or "none"
