"""Closed loops of clients against servers, measured in windows by the servers' own counters."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import aiohttp
import psutil

_TIMEOUT = aiohttp.ClientTimeout(total=600)
_LOOK_S = 0.2
_SAMPLE = re.compile(r"^vllm:(\w+)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
_EDGE = re.compile(r'le="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Job:
    """One request: the prompt's token ids and how many tokens to generate."""

    prompt: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a server is given to do, and its process."""

    jobs: Iterator[Job]
    pid: int


@dataclass(slots=True)
class Window:
    """What happened between two looks at `/metrics`. Times are seconds."""

    seconds: float
    requests: int
    output_tokens: int
    preemptions: int  # events
    preempted: int  # requests that completed and had been preempted at least once
    cpu_s: float  # processor time of the server's processes
    latencies: list[float] = field(default_factory=list)  # of requests that completed in the window

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds


async def measure(
    loads: Mapping[str, Load], *, clients: int, warm_requests: int, window_s: float, windows: int = 1
) -> list[dict[str, Window]]:
    """Load all servers at once and look at them `windows` times every `window_s` seconds.

    Before the first look each server has completed `warm_requests`, so that those which run did not all start together.
    Each server (by base URL) has `clients` clients of its own, each with one request at a time. What still runs at the
    end is aborted, so that the next server has the machine to itself.
    """
    async with AsyncExitStack() as stack:
        running = {
            url: await stack.enter_async_context(_running(url, load, clients=clients)) for url, load in loads.items()
        }
        workers = [worker for each in running.values() for worker in each.workers]
        while min(len(each.latencies) for each in running.values()) < warm_requests:
            await _sleep_unless_failed(workers, _LOOK_S)
        before = {url: await each.look() for url, each in running.items()}
        found: list[dict[str, Window]] = []
        for _ in range(windows):
            await _sleep_unless_failed(workers, window_s)
            after = {url: await each.look() for url, each in running.items()}
            found.append({url: _window(before[url], after[url], running[url].latencies) for url in running})
            before = after
    return found


@dataclass(slots=True)
class _Running:
    server: psutil.Process
    session: aiohttp.ClientSession
    workers: list[asyncio.Task[None]]
    latencies: list[tuple[float, float]]  # when a request completed, and how long it took

    async def look(self) -> dict[str, float]:
        seen = await counters(self.session)
        processes = [self.server, *self.server.children(recursive=True)]
        times = [each.cpu_times() for each in processes]
        return seen | {"time": time.monotonic(), "cpu": sum(each.user + each.system for each in times)}


@asynccontextmanager
async def _running(base_url: str, load: Load, *, clients: int) -> AsyncIterator[_Running]:
    latencies: list[tuple[float, float]] = []
    connector = aiohttp.TCPConnector(limit=0, force_close=True)  # the server closes idle connections, perhaps just now
    async with aiohttp.ClientSession(base_url, connector=connector, timeout=_TIMEOUT) as session:
        workers = [asyncio.create_task(_client(session, load.jobs, latencies)) for _ in range(clients)]
        try:
            yield _Running(psutil.Process(load.pid), session, workers, latencies)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        await _idle(session)


def _window(before: dict[str, float], after: dict[str, float], latencies: list[tuple[float, float]]) -> Window:
    change = {name: value - before.get(name, 0.0) for name, value in after.items()}
    return Window(
        seconds=change["time"],
        requests=round(change["request_num_preemptions_count"]),
        output_tokens=round(change["generation_tokens_total"]),
        preemptions=round(change["num_preemptions_total"]),
        preempted=preempted_requests(change),
        cpu_s=change["cpu"],
        latencies=[took for at, took in latencies if before["time"] <= at <= after["time"]],
    )


async def _client(session: aiohttp.ClientSession, jobs: Iterator[Job], latencies: list[tuple[float, float]]) -> None:
    for job in jobs:
        body = {"prompt": list(job.prompt), "max_tokens": job.output, "ignore_eos": True, "temperature": 0}
        started = time.monotonic()
        async with session.post("/v1/completions", json=body) as response:
            reply = await response.json()
            if response.status != 200 or reply["usage"]["completion_tokens"] != job.output:
                raise RuntimeError(f"the server answered {response.status}: {reply}")
        ended = time.monotonic()
        latencies.append((ended, ended - started))


async def _sleep_unless_failed(workers: list[asyncio.Task[None]], seconds: float) -> None:
    done, _ = await asyncio.wait(workers, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for worker in done:
        worker.result()


async def _idle(session: aiohttp.ClientSession, deadline_s: float = 30.0) -> None:
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        now = await counters(session)
        if not now["num_requests_running"] and not now["num_requests_waiting"]:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the server went on with requests whose clients were gone")


async def counters(session: aiohttp.ClientSession) -> dict[str, float]:
    """The engine's counters now, all labels of a name together."""
    async with session.get("/metrics") as response:
        page = await response.text()
    found: dict[str, float] = {}
    for name, labels, value in _SAMPLE.findall(page):
        edge = _EDGE.search(labels or "")
        key = f"{name}:{edge[1]}" if edge else name
        found[key] = found.get(key, 0.0) + float(value)
    return found


def preempted_requests(change: dict[str, float]) -> int:
    """Requests preempted at least once, from the histogram of preemptions per request.

    Its first bucket holds 0 and 1 together, so those preempted once are what is left of the sum: all preemptions less
    those of requests in the buckets for 2, 3, 4 and 5 (exact) and above (their middle).
    """
    edges = [1, 2, 3, 4, 5, 10, 20]
    counts = [change[f"request_num_preemptions_bucket:{float(edge)}"] for edge in edges]
    counts.append(change["request_num_preemptions_count"])
    several = [later - earlier for earlier, later in pairwise(counts)]
    times = (2, 3, 4, 5, 8, 15, 25)
    extra = sum((time_ - 1) * count for time_, count in zip(times, several, strict=True))
    return max(round(sum(several)), round(change["request_num_preemptions_sum"] - extra))
