"""Admission policies before the engine in little: what each does with the same requests."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from bench.admission_engine import Engine, Job
from bench.admission_loads import Load
from reasoningpool_runtime.admission.ledger import Ledger, Share
from reasoningpool_runtime.admission.policy import ForecastPolicy
from reasoningpool_runtime.admission.queue import Waiting, WaitingQueue
from reasoningpool_runtime.admission.types import AdmissionConfig, AdmissionRequest, Capacity, Outcome

LOOK_SECONDS: Final = 0.25  # between two looks at the queue without an arrival or an end
_ENDLESS: Final = 10**9


class Gate(Protocol):
    """What stands before the engine."""

    def offer(self, job: Job, now: float) -> None: ...
    def poll(self, now: float) -> list[Job]: ...
    def preempted(self, count: int) -> None: ...
    def grown(self, job: Job, tokens: int) -> None: ...
    def ended(self, job: Job, now: float) -> None: ...


class NoGate:
    """Everything goes to the engine at once; its own limit decides."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()

    def offer(self, job: Job, now: float) -> None:
        self._waiting.append(job)

    def poll(self, now: float) -> list[Job]:
        ready = list(self._waiting)
        self._waiting.clear()
        return ready

    def preempted(self, count: int) -> None:
        pass

    def grown(self, job: Job, tokens: int) -> None:
        pass

    def ended(self, job: Job, now: float) -> None:
        pass


class WorstCaseGate(NoGate):
    """Commits prompt and cap of each request before it starts."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self._ledger = Ledger(capacity)
        self._shares: dict[int, Share] = {}

    def poll(self, now: float) -> list[Job]:
        ready = []
        while self._waiting:
            request = request_of(self._waiting[0])
            _, most = self._ledger.needs(request)
            if self._ledger.committed_blocks + most > self._ledger.capacity.blocks and len(self._ledger):
                break
            job = self._waiting.popleft()
            share = Share(request, None)
            self._ledger.start(share, now)
            self._shares[id(job)] = share
            ready.append(job)
        return ready

    def ended(self, job: Job, now: float) -> None:
        self._ledger.end(self._shares.pop(id(job)))


class ForecastGate:
    """The runtime's admission without its event loop."""

    def __init__(self, capacity: Capacity, load: Load, *, told: bool = True) -> None:
        expected = {name: load.expected(name) for name in load.efforts} if told else {}
        endless = {"max_queued_requests": _ENDLESS, "max_queued_tokens": _ENDLESS, "max_wait_seconds": float(_ENDLESS)}
        config = AdmissionConfig(expected_output_tokens=expected, **endless)
        self.policy = ForecastPolicy(capacity, config)
        self._queue = WaitingQueue(config)
        self._shares: dict[int, Share] = {}

    def offer(self, job: Job, now: float) -> None:
        self._queue.push(Waiting(self.policy.share(request_of(job)), now, handle=job))

    def poll(self, now: float) -> list[Job]:
        ready = []
        while (head := self._queue.head(now)) is not None and self.policy.may_start(head.share):
            self._queue.remove(head)
            self.policy.start(head.share, now)
            self._shares[id(head.handle)] = head.share
            ready.append(head.handle)
        return ready

    def preempted(self, count: int) -> None:
        self.policy.observe_preemptions(count)

    def grown(self, job: Job, tokens: int) -> None:
        self.policy.grow(self._shares[id(job)], 0, tokens)

    def ended(self, job: Job, now: float) -> None:
        self.policy.end(self._shares.pop(id(job)), Outcome.COMPLETED)


def request_of(job: Job) -> AdmissionRequest:
    return AdmissionRequest(effort=job.effort, prompt_tokens=job.prompt, max_output_tokens=job.cap)


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened after the warm-up."""

    requests: int
    preempted: int
    preemptions: int
    tokens_per_second: float
    requests_per_second: float
    first_token_p50_s: float
    first_token_p99_s: float
    mean_running: float

    @property
    def preempted_share(self) -> float:
        return self.preempted / self.requests


def simulate(
    jobs: Iterator[Job], gate: Gate, engine: Engine, *, warm_up: int, clients: int = 0, rate: float = 0.0, seed: int = 0
) -> Seen:
    """Serve all jobs: `clients` with one request each at a time, or arrivals at random at `rate` per second.

    What runs out at the end is not measured: fewer and fewer would run.
    """
    if rate:
        return _Simulation(gate, engine, warm_up).open_loop(_arrivals(jobs, rate, random.Random(seed)))
    return _Simulation(gate, engine, warm_up).closed_loop(jobs, clients)


class _Simulation:
    def __init__(self, gate: Gate, engine: Engine, warm_up: int) -> None:
        self._gate, self._engine, self._warm_up = gate, engine, warm_up
        self._done: list[Job] = []
        self._generated = self._preemptions = 0
        self._warm = (0.0, 0, 0)  # seconds, tokens and steps at the end of the warm-up

    def closed_loop(self, jobs: Iterator[Job], clients: int) -> Seen:
        for job in islice(jobs, clients):
            self._arrive(job, 0.0)
        while True:
            for _ in self._advance(self._engine.now + LOOK_SECONDS):
                follower = next(jobs, None)
                if follower is None:
                    return self._seen()
                self._arrive(follower, self._engine.now)

    def open_loop(self, arrivals: Iterator[tuple[float, Job]]) -> Seen:
        for at, job in arrivals:
            while self._engine.now < at:
                self._advance(min(at, self._engine.now + LOOK_SECONDS))
            self._arrive(job, at)
        return self._seen()

    def _arrive(self, job: Job, at: float) -> None:
        job.arrived = at
        self._gate.offer(job, at)

    def _advance(self, until: float) -> list[Job]:
        """Up to the next ends."""
        engine = self._engine
        self._gate.preempted(engine.preemptions - self._preemptions)
        self._preemptions = engine.preemptions
        for job in self._gate.poll(engine.now):
            engine.submit(job)
        ended = engine.advance(until, self._grown)
        for job in ended:
            self._gate.ended(job, engine.now)
            self._done.append(job)
            if len(self._done) == self._warm_up:
                self._warm = (engine.now, self._generated, engine.steps)
        return ended

    def _grown(self, job: Job, tokens: int) -> None:
        self._generated += tokens
        self._gate.grown(job, tokens)

    def _seen(self) -> Seen:
        measured = self._done[self._warm_up :]
        seconds, tokens, steps = self._warm
        waits = sorted(job.first_token_at - job.arrived for job in measured)
        return Seen(
            requests=len(measured),
            preempted=sum(job.preemptions > 0 for job in measured),
            preemptions=sum(job.preemptions for job in measured),
            tokens_per_second=(self._generated - tokens) / (self._engine.now - seconds),
            requests_per_second=len(measured) / (self._engine.now - seconds),
            first_token_p50_s=waits[len(waits) // 2],
            first_token_p99_s=waits[int(0.99 * (len(waits) - 1))],
            mean_running=(self._generated - tokens) / (self._engine.steps - steps),
        )


def _arrivals(jobs: Iterator[Job], rate: float, chance: random.Random) -> Iterator[tuple[float, Job]]:
    at = 0.0
    for job in jobs:
        at += chance.expovariate(rate)
        yield at, job
