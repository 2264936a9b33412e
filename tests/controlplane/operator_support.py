"""The operator against a real API server: its parts in this process, or the whole of it as a process of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yarl
from aiohttp import web

from reasoningpool.adapters.kube import Kube
from reasoningpool.adapters.login import connect
from reasoningpool.api import names
from reasoningpool.objects import KINDS, Kind, Manifest, ObjectKey
from reasoningpool.objects.kinds import OWN
from reasoningpool.planning.actions import Apply, Plan, Scale
from reasoningpool.reconcile.apply.executor import Executor, Report
from reasoningpool.reconcile.memory import PoolMemory
from reasoningpool.reconcile.observer import Observer
from reasoningpool.reconcile.store import PoolName, Store
from support.apiserver import ApiServer

PATHS = {
    "ReasoningPool": "/apis/reasoningpool.io/v1alpha1/namespaces/{}/reasoningpools",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
    "Widget": "/apis/test.reasoningpool.io/v1/namespaces/{}/widgets",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
}
# The operator's kinds, and some that only tests use.
TEST_KINDS = KINDS.with_kinds(
    Kind(api_version="monitoring.coreos.com/v1", kind="PodMonitor", plural="podmonitors", rank=9, grants=OWN),
)
CHILDREN = ("ServiceAccount", "StatefulSet", "Service", "PodDisruptionBudget")


def eventually(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """What the condition answers as soon as it is true; fails when it is not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Cluster:
    """A namespace of the test cluster, seen through a raw connection."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def reconnect(self) -> None:
        """The API server was restarted; a kept-alive connection leads nowhere."""
        self.api._connection.close()

    def path(self, kind: str, name: str = "") -> str:
        base = PATHS[kind].format(self.namespace)
        return f"{base}/{name}" if name else base

    def get(self, kind: str, name: str) -> Manifest | None:
        answer = self.api.request("GET", self.path(kind, name))
        return answer.body if answer.ok else None

    def list(self, kind: str) -> list[Manifest]:
        answer = self.api.request("GET", self.path(kind))
        assert answer.ok, answer.message
        return answer.body["items"]

    def create_pool(self, pool: Manifest) -> Manifest:
        answer = self.api.try_create(self.namespace, pool, dry_run=False)
        assert answer.ok, answer.message
        return answer.body

    def patch(self, kind: str, name: str, patch: Manifest, manager: str = "somebody") -> Manifest:
        content = "application/merge-patch+json"
        answer = self.api.request("PATCH", self.path(kind, name), patch, content_type=content, fieldManager=manager)
        assert answer.ok, answer.message
        return answer.body

    def delete(self, kind: str, name: str, propagation: str = "Background") -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        assert self.api.request("DELETE", self.path(kind, name), body).ok

    def versions(self, *kinds: str) -> dict[str, str]:
        """ResourceVersion of each object of these kinds."""
        return {
            f"{kind}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for kind in kinds or ("ReasoningPool", *CHILDREN, "Event")
            for item in self.list(kind)
        }

    def pods(self) -> dict[str, str]:
        """Uid of each pod that is not leaving."""
        return {
            item["metadata"]["name"]: item["metadata"]["uid"]
            for item in self.list("Pod")
            if "deletionTimestamp" not in item["metadata"]
        }

    def replicas(self, name: str) -> int | None:
        found = self.get("StatefulSet", name)
        return None if found is None else found["spec"]["replicas"]


def owners_of_replicas(stateful_set: Manifest) -> set[str]:
    """The managers that own spec.replicas."""
    return {
        entry["manager"]
        for entry in stateful_set["metadata"]["managedFields"]
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    }


def owned_spec(stateful_set: Manifest, manager: str) -> set[str]:
    """The fields of spec that a manager owns."""
    return {
        path
        for entry in stateful_set["metadata"]["managedFields"]
        if entry["manager"] == manager and not entry.get("subresource")
        for path in entry["fieldsV1"].get("f:spec", {})
    }


# -- parts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """A StatefulSet to apply and, unless it is left to others, its number of replicas."""

    apply: Apply
    replicas: int | None = None

    @property
    def manifest(self) -> Manifest:
        return self.apply.manifest


def plan_of(*wanted: Apply | Workload, **more: Any) -> Plan:
    """A plan that wants these objects."""
    scales = [
        Scale(key=key(item.manifest), replicas=item.replicas, why="a test")
        for item in wanted
        if isinstance(item, Workload) and item.replicas is not None
    ]
    applies = [item.apply if isinstance(item, Workload) else item for item in wanted]
    return Plan(**{"applies": tuple(applies), "scales": tuple(scales)} | more)


@dataclass
class Parts:
    """Store and executor on a real API server, with a pool of no kind as the owner of what is applied."""

    kube: Kube
    cluster: Cluster
    store: Store
    executor: Executor
    pool: Manifest
    memory: PoolMemory = field(default_factory=PoolMemory)

    @property
    def name(self) -> PoolName:
        return PoolName(self.cluster.namespace, self.pool["metadata"]["name"])

    async def look(self) -> None:
        """What the watches would have brought by now."""
        await Observer(self.kube, self.store, _NoPools(), (self.cluster.namespace,), lag=0.0).compare()

    async def carry_out(self, *wanted: Apply | Workload, **more: Any) -> Report:
        return await self.executor.carry_out(self.name, plan_of(*wanted, **more), self.memory)

    def restarted(self) -> None:
        """Forget everything, as a new process would."""
        self.memory = PoolMemory()
        self.store = Store(kinds=TEST_KINDS)
        self.executor = Executor(self.kube, self.store)

    def meta(self, name: str, **more: Any) -> Manifest:
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": self.pool["metadata"]["name"],
            "uid": self.pool["metadata"]["uid"],
            "controller": True,
        }
        labels = names.pool_selector(self.name.name)
        return {
            "name": name,
            "namespace": self.name.namespace,
            "labels": labels,
            "ownerReferences": [owner],
            **more,
        }

    def stateful_set(self, name: str = "p-a", *, service: str = "p-a-pods", image: str = "engine:1") -> Manifest:
        selector = names.tier_selector(self.name.name, "a")
        labels = names.pool_selector(self.name.name) | selector
        container = {"name": "engine", "image": image}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": self.meta(name),
            "spec": {
                "podManagementPolicy": "Parallel",
                "serviceName": service,
                "selector": {"matchLabels": selector},
                "template": template,
            },
        }

    def service(self, name: str = "p-a", port: int = 8000) -> Manifest:
        spec = {"selector": names.tier_selector(self.name.name, "a"), "ports": [{"name": "http", "port": port}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self.meta(name), "spec": spec}

    async def pods(self, count: int) -> dict[str, str]:
        """The pods once the StatefulSet controller has made so many; then the store knows them too."""
        found = await asyncio.to_thread(
            eventually, lambda: (pods := self.cluster.pods()) and len(pods) == count and pods, f"{count} pods"
        )
        await self.look()
        return found


class _NoPools:
    def names(self) -> Iterator[Any]:
        return iter(())

    def seen(self, pool: Manifest) -> None:
        pass


@contextlib.asynccontextmanager
async def parts(kubeconfig: Path, api: ApiServer, namespace: str) -> AsyncIterator[Parts]:
    client, relogin = await connect(kubeconfig=str(kubeconfig))
    kube = Kube(client, relogin, kinds=TEST_KINDS)
    try:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": namespace}}
        pool = await kube.create(owner, manager="test")
        store = Store(kinds=TEST_KINDS)
        yield Parts(kube, Cluster(api, namespace), store, Executor(kube, store), pool)
    finally:
        await kube.close()


# -- faults between operator and API server ------------------------------------------------------------------------


class Faults:
    """A proxy in front of the API server, in a thread of its own. Its attributes are its faults, switched at will."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._upstream = cluster["server"]
        self._tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster.pop("certificate-authority-data")).decode()
        )
        self.mute_watches = False  # watches stay open and say nothing
        self.expire_watches: set[str] = set()  # paths whose next watch is answered by an ERROR event 410
        self.refuse_watches: set[str] = set()  # paths whose next watch is answered by HTTP 410
        self.break_watches: dict[str, int] = {}  # paths whose next watch is answered by an ERROR event of this code
        self.write_delay = 0.0  # seconds that a write (but of a Lease) takes on its way
        self.received: list[tuple[str, str]] = []  # writes (but of a Lease), in the moment they come in
        self.hold = False  # requests on connections made before are never answered, new connections are served
        self.delay = 0.0
        self.overload = 0  # so many requests that write are answered by 429
        self.watches: list[str] = []
        self.writes: list[tuple[str, str]] = []
        self._held: set[Any] = set()
        self._known: set[Any] = set()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)
        cluster["server"] = f"http://127.0.0.1:{self.port}"
        self.kubeconfig = folder / "proxied.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))

    def hold_connections(self) -> None:
        """From now on nothing that is connected gets an answer, as behind a firewall that forgot its state."""
        self._held = set(self._known)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=self._tls))
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _end(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.1)  # transports close in the loop's next turns

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self._known.add(request.transport)
        await self._stuck(request)
        if request.method != "GET" and "/leases" not in request.path:
            self.received.append((request.method, request.path))
            await asyncio.sleep(self.write_delay)
        await asyncio.sleep(self.delay)
        is_watch, path = "watch" in request.query, request.path
        if is_watch:
            self.watches.append(path)
            if (answer := self._watch_fault(path)) is not None:
                return answer
        elif request.method != "GET":
            self.writes.append((request.method, path))
            if self.overload:
                self.overload -= 1
                return web.json_response({"kind": "Status", "code": 429}, status=429, headers={"Retry-After": "1"})
        headers = {
            key: value for key, value in request.headers.items() if key.lower() not in {"host", "content-length"}
        }
        url = yarl.URL(self._upstream + request.raw_path, encoded=True)
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read() or None, timeout=timeout
        ) as answer:
            kept = {"Content-Type": answer.headers.get("Content-Type", "")}
            if not is_watch or answer.status != 200:
                body = await answer.read()
                await self._stuck(request)
                return web.Response(status=answer.status, body=body, headers=kept)
            response = web.StreamResponse(status=200, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                async for chunk in answer.content.iter_any():
                    await self._stuck(request)
                    if not self.mute_watches:
                        await response.write(chunk)
            return response

    def _watch_fault(self, path: str) -> web.Response | None:
        gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
        if path in self.break_watches:
            said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.break_watches.pop(path)}
            # As Go writes it.
            return web.Response(text=json.dumps({"type": "ERROR", "object": said}, separators=(",", ":")) + "\n")
        if path in self.refuse_watches:
            self.refuse_watches.discard(path)
            return web.json_response(gone, status=410)
        if path in self.expire_watches:
            self.expire_watches.discard(path)
            return web.Response(text=json.dumps({"type": "ERROR", "object": gone}) + "\n")
        return None

    async def _stuck(self, request: web.Request) -> None:
        if request.transport in self._held:
            await asyncio.Event().wait()


# -- the whole -----------------------------------------------------------------------------------------------------


class OperatorProcess:
    """`reasoningpool run` on one namespace, with its Lease in the same one."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        log: Path,
        *flags: str,
        program: tuple[str, ...] = ("-m", "reasoningpool.cli"),
        **env: str,
    ) -> None:
        self.log = log
        command = [sys.executable, *program, "run", "--kubeconfig", str(kubeconfig)]
        command += ["--namespace", namespace, "--lease-namespace", namespace, "--health-port", "0", *flags]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("REASONINGPOOL_")}
        with log.open("a") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment | env)

    def text(self) -> str:
        return self.log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """The log, one dict a line."""
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]

    def health_port(self) -> int:
        return int(re.findall(r"health endpoints at [^:]+:(\d+)", self.text())[-1])

    def health(self, path: str) -> tuple[int, str]:
        """Status and text of a health endpoint; 0 while nobody listens."""
        found = re.findall(r"health endpoints at [^:]+:(\d+)", self.text())
        if not found:
            return 0, ""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{found[-1]}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_leading(self, seconds: float = 40.0) -> OperatorProcess:
        eventually(lambda: self._alive() and self.health("/readyz")[1].startswith("leading"), "leading", seconds)
        return self

    def wait_standby(self, seconds: float = 40.0) -> OperatorProcess:
        eventually(lambda: self._alive() and self.health("/readyz")[1].startswith("standby"), "standing by", seconds)
        return self

    def _alive(self) -> bool:
        assert self.process.poll() is None, self.text()[-3000:]
        return True

    def stop(self) -> float:
        """SIGTERM; seconds until it was gone."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=20) == 0, self.text()[-3000:]
        return time.monotonic() - started

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=20)


@contextlib.contextmanager
def running(*args: Any, **kwargs: Any) -> Iterator[OperatorProcess]:
    operator = OperatorProcess(*args, **kwargs)
    try:
        yield operator
    finally:
        if operator.process.poll() is None:
            operator.kill()


def key(manifest: Manifest) -> ObjectKey:
    return ObjectKey.of(manifest)
