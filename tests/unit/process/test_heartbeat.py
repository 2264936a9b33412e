"""A watch that says nothing is found out."""

import asyncio
from functools import partial

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reasoningpool.adapters.watch_response import _NotingReader, noting_response
from reasoningpool.process import heartbeat as module
from reasoningpool.process.heartbeat import Heartbeats

DEAD_AFTER_SECONDS = 150.0


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def heartbeats(now):
    return Heartbeats(70.0, lambda: now[0])


@pytest.mark.field_report("K04")
def test_silent_watch_is_dead_after_twice_the_timeout(heartbeats, now):
    heartbeats.expect(["/pods", "/pools"])
    now[0] = DEAD_AFTER_SECONDS
    heartbeats.note("/pods")
    assert heartbeats.dead() == []
    now[0] += 1
    assert heartbeats.dead() == [f"/pools ({DEAD_AFTER_SECONDS + 1:.0f} s)"]


@pytest.mark.field_report("K04")
def test_relist_or_bookmark_keeps_a_watch_alive(heartbeats, now):
    heartbeats.expect(["/pools"])
    now[0] = DEAD_AFTER_SECONDS + 1
    heartbeats.note("/pools")
    assert heartbeats.dead() == []


def test_a_standby_that_watches_nothing_is_alive(heartbeats, now):
    heartbeats.note("/pools")
    now[0] = 1e9
    assert heartbeats.dead() == []


@pytest.mark.field_report("K16")
def test_second_list_of_a_path_means_a_watch_gap(heartbeats):
    gaps = []
    heartbeats.on_gap = lambda: gaps.append(1)
    heartbeats.expect(["/pools", "/pods"])
    for path in ("/pools", "/pods", "/nodes", "/nodes"):
        heartbeats.note_list(path)
    assert not gaps
    heartbeats.note_list("/pods")
    assert len(gaps) == 1


async def test_each_chunk_of_a_stream_counts():
    class Reader:
        exception = "kept"

        async def iter_chunked(self, size):
            for chunk in (b"a", b"b"):
                yield chunk

    beats = []
    reader = _NotingReader(Reader(), lambda: beats.append(1))
    assert [chunk async for chunk in reader.iter_chunked(10)] == [b"a", b"b"]
    assert len(beats) == 2
    assert reader.exception == "kept"


def watching(heartbeats, *chunks):
    heartbeats.expect(["/pools"])

    class Reader:
        async def iter_chunked(self, size):
            for chunk in chunks:
                yield chunk

    return _NotingReader(Reader(), lambda: None, partial(heartbeats.break_off, "/pools"))


@pytest.mark.parametrize("code", [b"403", b"500"])
async def test_an_error_event_breaks_the_watch_off(heartbeats, code):
    said = b'{"type":"ERROR","object":{"kind":"Status","code":' + code + b"}}\n"
    assert [chunk async for chunk in watching(heartbeats, b"{}\n", said).iter_chunked(10)] == [b"{}\n", said]
    assert code.decode() in heartbeats.broken
    async with asyncio.timeout(5):
        await heartbeats.wait_dead()


@pytest.mark.parametrize(
    "chunk",
    [
        b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n',
        b'{"type":"ADDED","object":{"spec":"{\\"type\\":\\"ERROR\\",\\"object\\":{\\"kind\\":\\"Status\\""}}\n',
    ],
    ids=["expired", "quoted"],
)
async def test_an_expired_watch_and_a_value_that_looks_like_an_error_break_nothing_off(heartbeats, chunk):
    assert [seen async for seen in watching(heartbeats, chunk).iter_chunked(10)] == [chunk]
    assert heartbeats.broken == ""


async def test_a_watch_that_stays_dead_ends_the_waiting(heartbeats, now, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.001)
    heartbeats.expect(["/pools"])
    waiting = asyncio.create_task(heartbeats.wait_dead())
    now[0] = DEAD_AFTER_SECONDS + 1
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done
    now[0] += module._UNHEARD_SECONDS
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refused_watch_of_an_optional_kind_waits_instead_of_failing(status):
    async def refuse(_request):
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/{path:.*}", refuse)
    heartbeats, refused = Heartbeats(70.0), asyncio.Event()
    heartbeats.expect(["/optional"], on_refused=refused.set)
    heartbeats.expect(["/required"])
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(
            response_class=noting_response(heartbeats.note, heartbeats.note_list, heartbeats.refused)
        ) as session,
    ):
        waiting = asyncio.create_task(session.get(server.make_url("/optional?watch=true")))
        async with asyncio.timeout(5):
            await refused.wait()
            assert (await session.get(server.make_url("/required?watch=true"))).status == status
        assert not waiting.done()
        waiting.cancel()
        heartbeats.forget(["/optional"])
    assert "/optional" not in heartbeats._last
