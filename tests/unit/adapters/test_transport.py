"""What leaves for the API server: nothing is written once leadership is lost, whatever was waited for before."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient

from reasoningpool.adapters.errors import NotLeading, Transient
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.kube import Kube
from reasoningpool.adapters.login import _configuration
from reasoningpool.objects import ObjectKey

KEY = ObjectKey("v1", "Service", "llm", "p")
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"namespace": "llm", "name": "l", "resourceVersion": "1"},
}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "llm", "name": "p"}}
POOL = {"apiVersion": "reasoningpool.io/v1alpha1", "kind": "ReasoningPool"} | {"metadata": SERVICE["metadata"]}

WRITES = {
    "apply": lambda kube: kube.apply(SERVICE, manager="m"),
    "apply_status": lambda kube: kube.apply_status(POOL, manager="m"),
    "delete": lambda kube: kube.delete(KEY, uid="u"),
    "create": lambda kube: kube.create(SERVICE, manager="m"),
    "merge": lambda kube: kube.merge(KEY, {}, manager="m"),
}
OTHERS = {
    "get": lambda kube: kube.get(KEY),
    "get_lease": lambda kube: kube.get_lease(ObjectKey.of(LEASE)),
    "create_lease": lambda kube: kube.create_lease(LEASE),
    "put_lease": lambda kube: kube.put_lease(LEASE),
}


class Server:
    """Answers what `answer` answers, and writes down what came."""

    def __init__(self):
        self.seen = []
        self.answer = lambda request: web.json_response({})

    async def serve(self, request):
        await request.read()
        self.seen.append(request.method)
        return self.answer(request)


@asynccontextmanager
async def connected(**options):
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.serve)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = _configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    kube = Kube(ApiClient(configuration), **options)
    try:
        yield kube, server
    finally:
        await kube.close()
        await runner.cleanup()


class Leadership:
    """True for so many questions, then False."""

    def __init__(self, answers=10**9):
        self.left = answers

    def __call__(self):
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize("write", WRITES)
async def test_nobody_but_the_leader_writes(write) -> None:
    async with connected() as (kube, server):
        kube.write_only_if(lambda: False)
        with pytest.raises(NotLeading):
            await WRITES[write](kube)
        assert server.seen == []


@pytest.mark.parametrize("request_", OTHERS)
async def test_reads_and_the_lease_need_no_leadership(request_) -> None:
    async with connected() as (kube, server):
        kube.write_only_if(lambda: False)
        await OTHERS[request_](kube)
        assert len(server.seen) == 1


@pytest.mark.parametrize("write", WRITES)
async def test_leadership_lost_at_any_moment_before_the_body_leaves_stops_the_write(write) -> None:
    async with connected() as (kube, server):
        await kube.get(KEY)  # a connection is there
        server.seen.clear()
        for answers in range(3):
            kube.write_only_if(Leadership(answers))
            async with asyncio.timeout(5):
                with pytest.raises(NotLeading):
                    await WRITES[write](kube)
        assert server.seen == []
        kube.write_only_if(Leadership(3))
        await WRITES[write](kube)
        assert len(server.seen) == 1


async def test_leadership_lost_while_waiting_for_a_slot_stops_the_write() -> None:
    async with connected(concurrency=1) as (kube, server):
        leading = True
        kube.write_only_if(lambda: leading)
        gate = kube._transport._gate
        async with gate.slot(Priority.NORMAL):
            waiting = asyncio.create_task(kube.apply(SERVICE, manager="m"))
            async with asyncio.timeout(5):
                while not gate.is_wanted(Priority.BACKGROUND):  # noqa: ASYNC110 - the gate signals nothing
                    await asyncio.sleep(0)
            leading = False
        with pytest.raises(NotLeading):
            await waiting
        assert server.seen == []


@pytest.mark.parametrize("what", ["overload", "broken connection", "expired login"])
async def test_leadership_lost_before_a_new_try_stops_the_write(what) -> None:
    async with connected() as (kube, server):
        leadership = Leadership()
        kube.write_only_if(leadership)

        def answer(request):
            leadership.left = 0
            if what == "broken connection":
                request.transport.abort()
            status = 429 if what == "overload" else 401
            return web.json_response({"kind": "Status"}, status=status, headers={"Retry-After": "0"})

        server.answer = answer
        with pytest.raises(NotLeading):
            await kube.apply(SERVICE, manager="m")
        assert len(server.seen) == 1


async def test_events_without_end_are_not_read_to_their_end() -> None:
    async with connected() as (kube, server):
        server.answer = lambda request: web.json_response({"items": [{"message": "x" * (3 << 20)}]})
        with pytest.raises(Transient, match="longer than"):
            await kube.warnings_about("llm", "u", "FailedCreate", limit=5)
        server.answer = lambda request: web.json_response({"items": [{"message": "x"}]})
        assert len(await kube.warnings_about("llm", "u", "FailedCreate", limit=5)) == 1


async def test_time_is_that_of_the_api_server() -> None:
    async with connected() as (kube, server):
        stamp = "Mon, 05 Jan 2026 10:00:00 GMT"
        server.answer = lambda request: web.json_response({}, headers={"Date": stamp})
        await kube.get(KEY)
        assert (kube.now().year, kube.now().day, kube.now().hour) == (2026, 5, 10)
