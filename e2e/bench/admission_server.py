"""The real vLLM server under the admission benchmark's loads: fixed limits, no limit, and admission before it.

Every policy serves the same requests within a round, one policy at a time, and every round begins with another one, so
that all see the same noise of a shared machine. All clients stream. Admission runs in the client's process here, with
the controller of the runtime; it is told the cap of the request's effort, never the length that the client asks for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from bench import admission
from bench.admission_engine import Job
from bench.admission_loads import Load, loads
from bench.closed_loop import counters, preempted_requests
from engine import models, server
from reasoningpool_runtime.admission import (
    AdmissionConfig,
    AdmissionController,
    AdmissionRequest,
    Capacity,
    Outcome,
    Ticket,
)

POOL_TOKENS: Final = 4096
CLIENTS: Final = 64
REQUESTS: Final = 400
WARM_UP: Final = 100
ROUNDS: Final = 3
LIMITS: Final = (8, 10, 12, 16)
ENGINE_DEFAULT: Final = 128
STARTS: Final = 2  # servers that start at a time
_LONGEST: Final = 1536
_TIMEOUT: Final = aiohttp.ClientTimeout(total=600)
_PATIENT: Final = {"max_wait_seconds": 600.0, "max_queued_requests": 10_000}


@dataclass(slots=True)
class _Run:
    """What the clients of one policy have seen; times are of `time.monotonic`."""

    jobs: Iterator[Job]
    controller: AdmissionController | None
    chance: random.Random
    tokens: int = 0
    done: int = 0
    warm_at: float = 0.0
    warm_tokens: int = 0
    ended_at: float = 0.0
    ended_tokens: int = 0
    waits: list[float] = field(default_factory=list)

    def finished(self, wait: float) -> None:
        self.done += 1
        if self.done == WARM_UP:
            self.warm_at, self.warm_tokens = time.monotonic(), self.tokens
        if self.done > WARM_UP:
            self.waits.append(wait)

    def exhausted(self) -> None:
        if not self.ended_at:
            self.ended_at, self.ended_tokens = time.monotonic(), self.tokens


def run(seed: int) -> None:
    """All policies in rounds; each row is written as soon as it is there."""
    load = loads(POOL_TOKENS)[0]
    model = models.ensure_tiny("tiny-random")
    arguments = (
        *("--enforce-eager", "--block-size", str(admission.BLOCK), "--kv-cache-memory-bytes", f"{POOL_TOKENS >> 10}M"),
        *("--max-model-len", str(_LONGEST), "--no-enable-prefix-caching"),
    )
    with ExitStack() as stack:

        def start(limit: int) -> server.Server:
            context = server.serve(model, (*arguments, "--max-num-seqs", str(limit)))
            found = context.__enter__()
            stack.push(context)
            return found

        limits = (*LIMITS, ENGINE_DEFAULT)
        with ThreadPoolExecutor(STARTS) as starters:
            servers = dict(zip(limits, starters.map(start, limits), strict=True))
        policies = [*map(str, limits), "forecast"]
        for turn in range(ROUNDS):
            for policy in policies[turn % len(policies) :] + policies[: turn % len(policies)]:
                chosen = servers[int(policy) if policy.isdigit() else ENGINE_DEFAULT]
                asyncio.run(_measure(chosen.base_url, load, policy, seed + turn))


def _controller(load: Load, policy: str) -> AdmissionController | None:
    if policy.isdigit():
        return None
    capacity = Capacity(blocks=POOL_TOKENS // admission.BLOCK - 1, block_tokens=admission.BLOCK)
    expected = {name: load.expected(name) for name in load.efforts}
    return AdmissionController(capacity, AdmissionConfig(expected_output_tokens=expected, **_PATIENT), time.monotonic)


async def _measure(base_url: str, load: Load, policy: str, seed: int) -> None:
    seen = _Run(load.jobs(seed, REQUESTS), _controller(load, policy), random.Random(seed))
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(base_url, connector=connector, timeout=_TIMEOUT) as session:
        before = await counters(session)
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(_client(session, seen))
        after = await counters(session)
    change = {name: value - before.get(name, 0.0) for name, value in after.items()}
    waits = sorted(seen.waits)
    rate = (seen.ended_tokens - seen.warm_tokens) / (seen.ended_at - seen.warm_at)
    preempted = preempted_requests(change)
    row = {"part": "engine", "pool": POOL_TOKENS, "recompute": "measured", "load": load.name, "policy": policy}
    row |= {"derived": admission.derived(load, POOL_TOKENS), "seed": seed, "requests": REQUESTS}
    row |= {"preempted": preempted, "preemptions": round(change["num_preemptions_total"])}
    row |= {"tokens_per_second": round(rate, 1), "first_token_p99_s": round(waits[int(0.99 * (len(waits) - 1))], 3)}
    admission.keep(row)
    print(f"{policy}, round {seed}: {rate:,.0f} tokens/s, {preempted} of {REQUESTS} requests preempted", flush=True)


async def _client(session: aiohttp.ClientSession, seen: _Run) -> None:
    for job in seen.jobs:
        started = time.monotonic()
        ticket = None
        if seen.controller is not None:
            request = AdmissionRequest(effort=job.effort, prompt_tokens=job.prompt, max_output_tokens=job.cap)
            ticket = await seen.controller.admit(request)
        first = await _stream(session, seen, job, ticket)
        if ticket is not None:
            ticket.finish(Outcome.COMPLETED)
        seen.finished(first - started)
    seen.exhausted()


async def _stream(session: aiohttp.ClientSession, seen: _Run, job: Job, ticket: Ticket | None) -> float:
    """Serve one request; when its first token came."""
    prompt = [seen.chance.randrange(300, 1900) for _ in range(job.prompt)]
    body = {"prompt": prompt, "max_tokens": job.output, "ignore_eos": True, "temperature": 0, "stream": True}
    first, made = 0.0, 0
    async with session.post("/v1/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {await response.text()}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic()
            made += 1
            seen.tokens += 1
            if ticket is not None:
                ticket.tokens_generated(1)
    seen.tokens += job.output - made  # chunks of several tokens
    return first
