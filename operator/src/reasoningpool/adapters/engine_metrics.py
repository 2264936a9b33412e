"""Reads from a running vLLM how large its KV pool is.

vLLM publishes its CacheConfig as the labels of the gauge `vllm:cache_config_info` on `/metrics`, one series per
engine (label `engine`). That path asks for no API key: `--api-key` guards /v1, /v2, /inference and /cohere only
(vLLM 0.32, entrypoints/serve/middleware/authenticate.py).

The server is a program of a tenant's choice, and its page is read in the event loop that everybody's pools share.
So nothing here parses a page: it is searched for one name, and only the few bounded lines that begin with it are
looked at, in time linear in their length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import aiohttp

from reasoningpool.planning.observations import KVPool, KVPoolProblem, KVPoolReport

METRIC: Final = "vllm:cache_config_info"
# An engine answers within milliseconds, under load within a second or so.
TIMEOUT_SECONDS: Final = 5.0
CONNECT_TIMEOUT_SECONDS: Final = 2.0
# The page of 0.33 has 100 kB, its line of the metric 1.2 kB.
MAX_PAGE_BYTES: Final = 4 << 20
MAX_LINE_BYTES: Final = 8 << 10
MAX_SERIES: Final = 64
# Blocks, and their size in tokens, beyond what any device holds.
_MAX_BLOCKS: Final = 1 << 32
_MAX_BLOCK_SIZE: Final = 1 << 16
_LINE_START: Final = b"\n" + METRIC.encode() + b"{"
# The two alternatives of a value have no character in common, so that there is one way to match and no way back.
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)",?')


class PageTooLarge(Exception):  # noqa: N818 - a property of the page
    """A page beyond the bounds above."""


class EngineMetrics:
    """HTTP to engines. Every answer is a value: nothing an engine does raises."""

    def __init__(self, *, timeout: float = TIMEOUT_SECONDS, connect_timeout: float = CONNECT_TIMEOUT_SECONDS) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=connect_timeout)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def kv_pool(self, address: str, port: int) -> KVPoolReport:
        """The KV pool of the engine at this pod address."""
        host = f"[{address}]" if ":" in address else address
        lines = MetricLines()
        try:
            # No redirects: they would lead the operator to wherever an engine's image wants it.
            async with self._open().get(f"http://{host}:{port}/metrics", allow_redirects=False) as response:
                if response.status != 200 or response.headers.get("Content-Encoding", "identity") != "identity":
                    return KVPoolProblem.BAD_ANSWER
                async for chunk in response.content.iter_any():
                    lines.feed(chunk)
            return parse_kv_pool(lines.end())
        except TimeoutError:
            return KVPoolProblem.TIMEOUT
        except PageTooLarge:
            return KVPoolProblem.TOO_LARGE
        except aiohttp.ClientConnectorError:
            return KVPoolProblem.UNREACHABLE
        except (aiohttp.ClientError, ValueError, OSError):
            return KVPoolProblem.BAD_ANSWER

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Each engine is asked once per start: kept connections would be of no use.
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=self._timeout,
                # A few compressed bytes could become a page of gigabytes.
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


class MetricLines:
    """The lines of `METRIC` in a page that comes in pieces.

    At most `MAX_SERIES` lines of `MAX_LINE_BYTES` are kept. Other lines are passed over by one search for the
    metric's name, whatever their number and length.
    """

    def __init__(self) -> None:
        self._size = 0
        self._rest = b"\n"  # the first line begins like all others
        self._lines: list[str] = []

    def feed(self, chunk: bytes) -> None:
        """Take the next piece.

        Raises:
            PageTooLarge: the page, a line of the metric, or the number of such lines is beyond its bound.
        """
        self._size += len(chunk)
        if self._size > MAX_PAGE_BYTES:
            raise PageTooLarge
        text, at = self._rest + chunk, 0
        while (start := text.find(_LINE_START, at)) >= 0:
            end = text.find(b"\n", start + 1)
            if end < 0:
                self._keep(text[start:])
                return
            self._take(text[start + 1 : end])
            at = end  # this newline begins the next line
        # No more than what could be the beginning of the name.
        self._rest = text[max(at, len(text) - len(_LINE_START) + 1) :]

    def end(self) -> list[str]:
        """The page is complete: all lines of the metric.

        Raises:
            PageTooLarge: see `feed`.
        """
        if self._rest.startswith(_LINE_START):
            self._take(self._rest[1:])
            self._rest = b""
        return self._lines

    def _keep(self, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES:
            raise PageTooLarge
        self._rest = line

    def _take(self, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES or len(self._lines) == MAX_SERIES:
            raise PageTooLarge
        self._lines.append(line.decode("utf-8", errors="replace"))


def parse_kv_pool(lines: Iterable[str]) -> KVPoolReport:
    """The smallest pool among the engines of one server.

    There is one engine: data parallelism, with which 0.32 puts the sum of all engines into each series, is refused.
    A label is the text of a Python value: `None` before the pool is known. `effective_attention_block_size` (since
    0.32) is the full-attention block of a model whose layer kinds have several; `block_size` is the smallest.
    """
    pools: list[KVPool] = []
    for line in lines:
        labels = _labels(line)
        if labels is None:
            return KVPoolProblem.BAD_ANSWER
        if (pool := _pool(labels)) is not None:
            pools.append(pool)
    if not pools:
        return KVPoolProblem.NO_METRIC
    return min(pools, key=lambda pool: pool.usable_kv_tokens)


def _labels(line: str) -> dict[str, str] | None:
    """The labels of one series; None when they are not written as vLLM's client library writes them.

    Escapes stay as they are: none of the labels that are read can hold one.
    """
    name, brace, _ = line.partition("{")
    if name != METRIC:
        return {}
    labels: dict[str, str] = {}
    at = len(name) + len(brace)
    while not line.startswith("}", at):
        found = _LABEL.match(line, at)
        if found is None:
            return None
        labels[found[1]] = found[2]
        at = found.end()
    return labels


def _pool(labels: dict[str, str]) -> KVPool | None:
    blocks = _number(labels.get("num_gpu_blocks"), _MAX_BLOCKS)
    size = _number(labels.get("effective_attention_block_size"), _MAX_BLOCK_SIZE) or _number(
        labels.get("block_size"), _MAX_BLOCK_SIZE
    )
    return KVPool(num_blocks=blocks, block_size=size) if blocks and size else None


def _number(text: str | None, most: int) -> int | None:
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > len(str(most)):
        return None
    return number if 1 <= (number := int(text)) <= most else None
