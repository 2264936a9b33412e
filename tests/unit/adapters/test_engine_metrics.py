"""Reading an engine's KV pool: the pages of real vLLM, and servers that are slow, strange or not there."""

import asyncio
import gzip
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.adapters import engine_metrics
from reasoningpool.adapters.engine_metrics import (
    MAX_LINE_BYTES,
    MAX_PAGE_BYTES,
    MAX_SERIES,
    METRIC,
    EngineMetrics,
    MetricLines,
    parse_kv_pool,
)
from reasoningpool.planning.observations import KVPool, KVPoolProblem
from support.hostile import PAGES, Engines

DATA = Path(__file__).parents[2] / "data"
SERIES = 'vllm:cache_config_info{{block_size="{size}",engine="{engine}",num_gpu_blocks="{blocks}"}} 1.0'


def page(version: str) -> str:
    return (DATA / f"vllm_metrics_{version}.txt").read_text()


def series(blocks: object, size: object = 16, engine: object = 0) -> str:
    return SERIES.format(blocks=blocks, size=size, engine=engine)


@pytest.mark.parametrize("version", ["0.32", "0.33"])
def test_pages_of_real_engines(version: str) -> None:
    """Started with --kv-cache-memory-bytes=4194304 --block-size=32 and 1,024 bytes a token."""
    lines = [line for line in page(version).splitlines() if "cache_config_info" in line]
    assert parse_kv_pool(lines) == KVPool(num_blocks=128, block_size=32)
    assert KVPool(num_blocks=128, block_size=32).usable_kv_tokens == 127 * 32


def test_smallest_of_several_engines_counts() -> None:
    lines = [series(300, engine=0), series(100, engine=1), series(200, engine=2)]
    assert parse_kv_pool(lines) == KVPool(num_blocks=100, block_size=16)


def test_engine_without_blocks_is_skipped_beside_a_sized_one() -> None:
    assert parse_kv_pool([series("None", engine=0), series(100, engine=1)]) == KVPool(num_blocks=100, block_size=16)


def test_full_attention_block_of_a_hybrid_is_what_a_block_holds() -> None:
    line = series(100, 16).replace("{", '{effective_attention_block_size="544",')
    assert parse_kv_pool([line]) == KVPool(num_blocks=100, block_size=544)
    unknown = series(100, 16).replace("{", '{effective_attention_block_size="None",')
    assert parse_kv_pool([unknown]) == KVPool(num_blocks=100, block_size=16)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [series("None")],
        [series(100, "None")],
        [series(0)],
        [series(-5)],
        [series("1e3")],
        [series(1 << 33)],
        [series("9" * 5_000)],
        [series(100, 1 << 17)],
        ["vllm:cache_config_info 1.0"],
        ['vllm:cache_config_info{engine="0"} 1.0'],
        ['vllm:cache_config_info_other{num_gpu_blocks="5",block_size="16"} 1.0'],
    ],
)
def test_page_without_a_number_of_blocks(lines: list[str]) -> None:
    assert parse_kv_pool(lines) is KVPoolProblem.NO_METRIC


@pytest.mark.parametrize("line", ['vllm:cache_config_info{num_gpu_blocks="5', "vllm:cache_config_info{} one", "\x00"])
def test_page_that_is_none(line: str) -> None:
    assert parse_kv_pool([line]) in {KVPoolProblem.BAD_ANSWER, KVPoolProblem.NO_METRIC}


def test_braces_quotes_and_commas_within_a_label_end_nothing() -> None:
    strange = series(100).replace("{", '{cache_dtype="a\\"},{b=\\\\",')
    assert parse_kv_pool([strange]) == KVPool(num_blocks=100, block_size=16)


@asynccontextmanager
async def engine(handler):
    app = web.Application()
    app.router.add_get("/metrics", handler)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
async def metrics():
    reader = EngineMetrics(timeout=0.5, connect_timeout=0.5)
    yield reader
    await reader.close()


async def test_pool_is_read_over_http_without_credentials(metrics) -> None:
    seen = []

    async def handler(request):
        seen.append(dict(request.headers))
        return web.Response(text=page("0.33"))

    async with engine(handler) as port:
        assert await metrics.kv_pool("127.0.0.1", port) == KVPool(num_blocks=128, block_size=32)
    assert "Authorization" not in seen[0]


async def test_metric_on_the_last_line_without_its_end_is_found(metrics) -> None:
    async def handler(_request):
        return web.Response(text="# a comment\n" + series(77))

    async with engine(handler) as port:
        assert await metrics.kv_pool("127.0.0.1", port) == KVPool(num_blocks=77, block_size=16)


HEADERS = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@asynccontextmanager
async def raw_engine(*pieces, pause=0.0):
    """A server that sends these bytes whatever it is asked, the last of them for ever if there is a pause."""

    async def serve(reader, writer):
        ends.append(asyncio.current_task())
        with suppress(ConnectionError):
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            for piece in pieces:
                writer.write(piece)
            while pause:
                await asyncio.sleep(pause)
                writer.write(pieces[-1])
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    seen: list[bytes] = []
    ends: list[asyncio.Task] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen
        await asyncio.gather(*ends)


async def test_compressed_page_is_neither_asked_for_nor_inflated(metrics) -> None:
    bomb = gzip.compress(series(100).encode() + b"\n" + b"x" * (1 << 20))
    head = f"{HEADERS}Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    async with raw_engine(head + bomb) as (port, seen):
        assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.BAD_ANSWER
    assert b"accept-encoding: identity" in seen[0].lower()


async def test_page_that_drips_is_given_up_after_the_whole_time(metrics) -> None:
    async with raw_engine(HEADERS.encode() + b"\r\n", b"x", pause=0.02) as (port, _):
        assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.TIMEOUT


@pytest.mark.parametrize(
    "text",
    [
        # 1.3 MB of labels on one line took the parser of the Prometheus client 70 s.
        METRIC + "{" + ",".join(f'l{number}="v"' for number in range(120_000)) + "} 1",
        METRIC + '{num_gpu_blocks="' + "9" * MAX_LINE_BYTES,
        "\n".join(series(100, engine=number) for number in range(MAX_SERIES + 1)),
        "# no end\n" + "x" * (MAX_PAGE_BYTES + 1),
    ],
    ids=["labels", "value", "series", "page"],
)
async def test_oversized_page_differs_from_a_page_without_metrics(metrics, text) -> None:
    async def handler(_request):
        return web.Response(text=text)

    async with engine(handler) as port:
        assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.TOO_LARGE


@pytest.mark.parametrize(
    "text",
    [
        'vllm:other{l="' + "x" * (1 << 20) + '"} 1',
        "\n" * (1 << 20),
        METRIC * 50_000,
        (METRIC + "_other{} 1\n") * 50_000,
        "\r" * (1 << 20),
    ],
    ids=["long line", "empty lines", "name within a line", "names that begin alike", "carriage returns"],
)
def test_what_is_not_the_metric_is_never_kept(text) -> None:
    lines = MetricLines()
    for start in range(0, len(text), 1 << 16):
        lines.feed(text[start : start + (1 << 16)].encode())
        assert len(lines._rest) < MAX_LINE_BYTES
    lines.feed(b"\n" + series(5).encode())
    assert lines.end() == [series(5)]


PIECES = st.lists(
    st.sampled_from(["\n", METRIC, METRIC + "{", series(7), series(7)[:30], "x", "# HELP ", "{", '"', "\r\n"]),
    max_size=30,
).map("".join)


@given(PIECES, st.lists(st.integers(0, 400), max_size=20))
def test_lines_are_the_same_however_the_page_is_cut(text, cuts) -> None:
    lines, at = MetricLines(), 0
    for cut in [*sorted(cuts), len(text)]:
        lines.feed(text[at:cut].encode())
        at = max(at, cut)
    assert lines.end() == [line for line in text.split("\n") if line.startswith(METRIC + "{")]


async def test_other_statuses_and_redirects_are_not_followed(metrics) -> None:
    asked = []

    async def handler(request):
        asked.append(request.path_qs)
        raise web.HTTPFound("/metrics?elsewhere")

    async with engine(handler) as port:
        assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.BAD_ANSWER
    assert asked == ["/metrics"]


async def test_endless_page_is_given_up(metrics, monkeypatch) -> None:
    monkeypatch.setattr(engine_metrics, "MAX_PAGE_BYTES", 1 << 16)

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 4096)

    async with engine(handler) as port:
        assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.TOO_LARGE


async def test_silent_engine_is_given_up(metrics) -> None:
    forever = asyncio.Event()

    async def handler(_request):
        await forever.wait()

    async with engine(handler) as port:
        assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.TIMEOUT
        forever.set()


async def test_engine_that_is_not_there(metrics) -> None:
    async def handler(_request):
        raise AssertionError

    async with engine(handler) as port:
        pass
    assert await metrics.kv_pool("127.0.0.1", port) is KVPoolProblem.UNREACHABLE


async def test_address_of_the_sixth_version_is_one(metrics) -> None:
    assert await metrics.kv_pool("::1", 1) is KVPoolProblem.UNREACHABLE


@pytest.fixture
def engines():
    made = Engines()
    yield made
    made.close()


@pytest.mark.parametrize("kind", PAGES)
async def test_every_kind_of_page_is_an_answer(metrics, engines, kind) -> None:
    port = engines.serve("127.0.0.1", *PAGES[kind], port=0)
    async with asyncio.timeout(20):  # the reader's own bound is half a second of waiting
        assert isinstance(await metrics.kv_pool("127.0.0.1", port), KVPoolProblem | KVPool)
