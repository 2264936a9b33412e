"""Reads from a running vLLM how large its KV pool is. The only importer of the Prometheus client.

vLLM publishes its CacheConfig as the labels of the gauge `vllm:cache_config_info` on `/metrics`, one series per
engine (label `engine`). That path asks for no API key: `--api-key` guards /v1, /v2, /inference and /cohere only
(vLLM 0.32, entrypoints/serve/middleware/authenticate.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from reasoningpool.planning.observations import KVPool, KVPoolProblem, KVPoolReport

METRIC: Final = "vllm:cache_config_info"
# An engine answers within milliseconds, under load within a second or so; the page of 0.33 has 100 kB.
TIMEOUT_SECONDS: Final = 5.0
CONNECT_TIMEOUT_SECONDS: Final = 2.0
MAX_PAGE_BYTES: Final = 8 << 20
# The engine is a program of the user's choice, so its figures are bounded like any other input: blocks and their
# size in tokens beyond what any device holds.
_MAX_BLOCKS: Final = 1 << 32
_MAX_BLOCK_SIZE: Final = 1 << 16


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
        try:
            # No redirects: they would lead the operator to wherever an engine's image wants it.
            async with self._open().get(f"http://{host}:{port}/metrics", allow_redirects=False) as response:
                if response.status != 200:
                    return KVPoolProblem.BAD_ANSWER
                lines = [line async for line in _lines(response.content)]
        except TimeoutError:
            return KVPoolProblem.TIMEOUT
        except aiohttp.ClientConnectorError:
            return KVPoolProblem.UNREACHABLE
        except (aiohttp.ClientError, ValueError, OSError):
            return KVPoolProblem.BAD_ANSWER
        return parse_kv_pool(lines)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Each engine is asked once per start: kept connections would be of no use.
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=self._timeout,
                trust_env=False,
            )
        return self._session


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    """The metric's own lines of a page, which may be long; the rest is read and dropped."""
    size, rest = 0, b""
    async for chunk in content.iter_chunked(1 << 16):
        size += len(chunk)
        if size > MAX_PAGE_BYTES:
            raise ValueError("the page is too long")
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if _is_wanted(line):
                yield line.decode("utf-8", errors="replace")
    if _is_wanted(rest):
        yield rest.decode("utf-8", errors="replace")


def _is_wanted(line: bytes) -> bool:
    return line.startswith(METRIC.encode())


def parse_kv_pool(lines: Iterable[str]) -> KVPoolReport:
    """The smallest pool among the engines of one server.

    There is one engine: data parallelism, with which 0.32 puts the sum of all engines into each series, is refused.
    A label is the text of a Python value: `None` before the pool is known. `effective_attention_block_size` (since
    0.32) is the full-attention block of a model whose layer kinds have several; `block_size` is the smallest.
    """
    try:
        families = text_string_to_metric_families("".join(f"{line}\n" for line in lines))
        samples = [sample for family in families for sample in family.samples if sample.name == METRIC]
    except (ValueError, KeyError, IndexError):
        return KVPoolProblem.BAD_ANSWER
    pools = [pool for sample in samples if (pool := _pool(sample.labels)) is not None]
    if not pools:
        return KVPoolProblem.NO_METRIC
    return min(pools, key=lambda pool: pool.usable_kv_tokens)


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
