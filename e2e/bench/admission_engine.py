"""An engine in little with a clock: vLLM's scheduler, and what its steps take.

The rules are those of `reasoningpool.simulation.scheduler` (a request is admitted when its prompt fits, the last is
preempted and computed again); what is new is time, arrivals from outside, and requests that leave. Runs from event to
event: steps in which nothing ends, starts or is preempted are taken at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_SEQUENCES: Final = 256  # vLLM's own max_num_seqs on many devices


@dataclass(frozen=True, slots=True)
class StepTime:
    """Milliseconds of a step: by itself, per sequence, with a full pool, and per token of a prefill."""

    base_ms: float
    sequence_ms: float
    full_pool_ms: float
    prefill_token_ms: float

    def seconds(self, sequences: int, used: float, prefilled: int) -> float:
        """`used` is the share of the pool in use."""
        decode = self.base_ms + self.sequence_ms * sequences + self.full_pool_ms * used
        return (decode + self.prefill_token_ms * prefilled) / 1000


# The tiny model on two CPU cores, from the windows of the concurrency benchmark: computing a request again is cheap.
CHEAP: Final = StepTime(6.2, 0.0, 0.0, 0.043)
# 10 ms for the weights and 12 ms for the keys and values of a full pool, as estimated of a dense 32B model in FP8 on an
# H100. Computing a request of this length again costs 10 to 25 % of its engine time, on that GPU rather two thirds.
DEAR: Final = StepTime(10.0, 0.0, 12.0, 0.3)


@dataclass(slots=True, eq=False)
class Job:
    """A request: what the client knows, what only the model knows (`output`), and what became of it."""

    effort: str
    prompt: int
    output: int
    cap: int
    arrived: float = 0.0
    made: int = 0
    todo: int = 0  # tokens still to prefill
    held: int = 0  # tokens with a place in the pool
    first_token_at: float = -1.0
    preemptions: int = 0


class Engine:
    """A pool of `blocks` with at most `limit` sequences."""

    def __init__(
        self, blocks: int, block: int, step_time: StepTime, *, limit: int = MOST_SEQUENCES, batched: int = 2048
    ) -> None:
        self.blocks, self.block, self.limit = blocks, block, limit
        self._step_time, self._batched = step_time, batched
        self.now = 0.0
        self.preemptions = self.steps = 0
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []

    def submit(self, job: Job) -> None:
        self.waiting.append(job)

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting

    def used(self, steps: int = 0) -> int:
        """Blocks in use, after so many steps more: those that decode take a token per step."""
        block = self.block
        return sum(-(-(job.held + (0 if job.todo else steps)) // block) for job in self.running)

    def advance(self, until: float, grown: Callable[[Job, int], None]) -> list[Job]:
        """Take steps until one request or more have ended or the time is `until`; those that ended.

        `grown` is told of every output's new tokens.
        """
        while self.now < until and not self.idle:
            victims = self._make_room()
            if not victims:
                self._admit()
            if done := self._steps(until, grown):
                return done
        if self.idle:
            self.now = max(self.now, until)
        return []

    def _make_room(self) -> int:
        victims = 0
        while len(self.running) > 1 and self.used(1) > self.blocks:
            last = self.running.pop()
            last.preemptions += 1
            self.preemptions += 1
            self.waiting.appendleft(last)
            victims += 1
        return victims

    def _admit(self) -> None:
        budget = self._batched - len(self.running)
        used = self.used(1)
        while self.waiting and len(self.running) < self.limit and budget > 0:
            head = self.waiting[0]
            needed = -(-(head.prompt + head.made) // self.block)
            if used + needed > self.blocks and self.running:
                return
            used += needed
            self.waiting.popleft()
            head.todo = head.held = head.prompt + head.made
            budget -= head.todo
            self.running.append(head)

    def _steps(self, until: float, grown: Callable[[Job, int], None]) -> list[Job]:
        running = self.running
        if any(job.todo for job in running):
            return self._prefill_step(grown)
        steps = min(job.output - job.made for job in running)
        may_start = self.waiting and len(running) < self.limit
        if may_start:
            steps = 1
        used = self.used()
        seconds = self._step_time.seconds(len(running), used / self.blocks, 0)
        steps = max(1, min(steps, int((until - self.now) / seconds) + 1))
        if steps > 1 and self.used(steps) > self.blocks:
            steps = self._steps_that_fit(steps)
        self.now += steps * seconds
        self.steps += steps
        for job in running:
            job.held += steps
        return self._grow(running, steps, grown)

    def _steps_that_fit(self, most: int) -> int:
        low, high = 1, most - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.used(middle) <= self.blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def _prefill_step(self, grown: Callable[[Job, int], None]) -> list[Job]:
        decoding = [job for job in self.running if not job.todo]
        budget = left = self._batched - len(decoding)
        for job in decoding:
            job.held += 1
        for job in self.running:
            if job.todo and left > 0:
                chunk = min(left, job.todo)
                job.todo -= chunk
                left -= chunk
                if not job.todo:
                    decoding.append(job)
        self.now += self._step_time.seconds(len(self.running), self.used() / self.blocks, budget - left)
        self.steps += 1
        return self._grow(decoding, 1, grown)

    def _grow(self, jobs: list[Job], steps: int, grown: Callable[[Job, int], None]) -> list[Job]:
        done = []
        for job in jobs:
            job.made += steps
            if job.first_token_at < 0:
                job.first_token_at = self.now
            grown(job, steps)
            if job.made >= job.output:
                done.append(job)
        if done:
            ended = set(map(id, done))
            self.running = [job for job in self.running if id(job) not in ended]
        return done
