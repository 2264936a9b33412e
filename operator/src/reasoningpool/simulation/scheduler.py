"""vLLM's scheduler in little: what N sequences in a pool of blocks really do, request by request.

Follows `vllm/v1/core/sched/scheduler.py` (0.33, first come first served): a waiting request is admitted when there is a
free sequence and its *prompt* fits the free blocks; every running request takes a further block when it has filled its
last; when there is none left, the request admitted last is preempted, loses all its blocks and waits at the front of
the queue to be computed again; in a step that preempts, nothing is admitted. Prefills take part in a step within the
budget of batched tokens. There is always a request waiting: a closed loop with more clients than sequences.

Runs from event to event (a completion, a full pool), not step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# Prompts and outputs of the next so many requests.
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


@dataclass(slots=True)
class Request:
    """`made` of the `output` tokens are generated."""

    prompt: int
    output: int
    made: int = 0
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        """What an admission has to compute."""
        return self.prompt + self.made


@dataclass(slots=True)
class Outcome:
    """What was seen after the warm-up."""

    requests: int = 0  # completed
    preempted: int = 0  # of them, preempted at least once
    preemptions: int = 0
    recomputed_tokens: int = 0
    steps: int = 0
    running_steps: int = 0
    held: list[int] = field(default_factory=list)  # blocks, at points evenly spread over the steps

    @property
    def preempted_share(self) -> float:
        return self.preempted / self.requests

    @property
    def preemptions_per_request(self) -> float:
        return self.preemptions / self.requests

    @property
    def running(self) -> float:
        return self.running_steps / self.steps


class Scheduler:
    """A replica of `pool` blocks under closed-loop load with at most `limit` sequences.

    `constant` blocks are held by every request whatever its length. With `empty` it starts idle, else as if it had run
    for long.
    """

    def __init__(
        self,
        draw: Draw,
        *,
        pool: int,
        limit: int,
        block: int = 16,
        batched: int = 8192,
        constant: int = 0,
        seed: int = 1,
        empty: bool = False,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._draw, self._pool, self._limit = draw, pool, limit
        self._block, self._batched, self._constant = block, batched, constant
        self._waiting: deque[Request] = deque()
        # Running requests in the order of admission, and of each: tokens with a place in the pool, tokens still to
        # generate, tokens still to prefill.
        self._running: list[Request] = []
        self._held, self._left, self._todo = (np.zeros(0, dtype=np.int64) for _ in range(3))
        if not empty:
            self._start()

    def run(self, requests: int, *, warm_up: int | None = None, sample_every: int | None = None) -> Outcome:
        """Serve until `requests` have completed after `warm_up` others, by default four times the limit.

        With `sample_every` the blocks held are noted every so many steps.
        """
        seen, warm_up = Outcome(), 4 * self._limit if warm_up is None else warm_up
        while seen.requests < requests:
            victims = self._make_room()
            if not victims:
                self._admit()
            steps = 1 if victims else self._steps_to_next_event()
            sampled = [] if sample_every is None else range(-seen.steps % sample_every, steps, sample_every)
            held = [self._blocks(self._held + ahead) for ahead in sampled]
            running, done = len(self._running), self._step(steps)
            if warm_up > 0:
                warm_up -= len(done)
                continue
            seen.held += held
            seen.steps += steps
            seen.running_steps += steps * running
            seen.requests += len(done)
            seen.preempted += sum(request.preemptions > 0 for request in done)
            seen.preemptions += len(victims)
            seen.recomputed_tokens += sum(victims)
        return seen

    def _start(self) -> None:
        """As if the server had run for long: length-biased requests at a uniform phase, as many as fit."""
        prompts, outputs = self._draw(self._rng, 50 * self._limit)
        free = self._pool
        for i in self._rng.choice(len(outputs), size=self._limit, p=outputs / outputs.sum()):
            request = Request(int(prompts[i]), int(outputs[i]), made=int(self._rng.integers(0, outputs[i])))
            free -= self._wanted(request)
            if free < 0 and self._running:
                return
            self._append(request, todo=0)

    def _append(self, request: Request, *, todo: int) -> None:
        self._running.append(request)
        self._held = np.append(self._held, request.tokens)
        self._left = np.append(self._left, request.output - request.made)
        self._todo = np.append(self._todo, todo)

    def _keep(self, kept: np.ndarray | slice) -> None:
        self._held, self._left, self._todo = self._held[kept], self._left[kept], self._todo[kept]

    def _blocks(self, tokens: np.ndarray) -> int:
        return int((-(-tokens // self._block)).sum()) + self._constant * len(tokens)

    def _wanted(self, request: Request) -> int:
        return -(-request.tokens // self._block) + self._constant

    def _next_step(self) -> np.ndarray:
        """Tokens each running request has a place for in the coming step: one more where it decodes."""
        step: np.ndarray = self._held + (self._todo == 0)
        return step

    def _make_room(self) -> list[int]:
        """Preempt the last until every other request can take its next token; the tokens each victim held."""
        victims: list[int] = []
        needed = self._next_step()
        while self._blocks(needed) > self._pool and len(self._running) > 1:
            last = self._running.pop()
            last.made = last.output - int(self._left[-1])
            last.preemptions += 1
            victims.append(int(self._held[-1]))
            self._keep(np.s_[:-1])
            needed = needed[:-1]
            self._waiting.appendleft(last)
        return victims

    def _admit(self) -> None:
        """Whole prompts are taken as held from the start: they must fit on admission and last a step or two."""
        budget = self._batched - int((self._todo == 0).sum()) - int(self._todo.sum())
        taken = self._blocks(self._next_step())
        while len(self._running) < self._limit and budget > 0:
            head = self._head()
            if taken + self._wanted(head) > self._pool and self._running:
                return
            taken += self._wanted(head)
            budget -= head.tokens
            self._append(self._waiting.popleft(), todo=head.tokens)

    def _head(self) -> Request:
        if not self._waiting:
            prompts, outputs = self._draw(self._rng, 256)
            self._waiting.extend(Request(int(p), int(o)) for p, o in zip(prompts, outputs, strict=True))
        return self._waiting[0]

    def _steps_to_next_event(self) -> int:
        """One while prompts are computed or a request may be admitted; else up to a completion or a full pool."""
        if self._todo.any():
            return 1
        if len(self._running) < self._limit and self._blocks(self._held + 1) + self._wanted(self._head()) <= self._pool:
            return 1
        end = int(self._left.min())
        if self._blocks(self._held + end) <= self._pool:  # mostly the completion comes first
            return end
        low, high = 1, end - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._blocks(self._held + middle) <= self._pool:
                low = middle
            else:
                high = middle - 1
        return max(1, low)

    def _step(self, steps: int) -> list[Request]:
        """Decode, or prefill within the budget; the requests that completed."""
        if self._todo.any():
            decoding = self._todo == 0
            budget = self._batched - int(decoding.sum())
            for i in np.flatnonzero(self._todo):
                chunk = min(budget, int(self._todo[i]))
                self._todo[i] -= chunk
                budget -= chunk
                self._left[i] -= self._todo[i] == 0  # the end of a prefill gives a token, which has no KV yet
            self._held[decoding] += 1
            self._left[decoding] -= 1
        else:
            self._held += steps
            self._left -= steps
        ended = self._left <= 0
        if not ended.any():
            return []
        done = [request for request, over in zip(self._running, ended, strict=True) if over]
        self._running = [request for request, over in zip(self._running, ended, strict=True) if not over]
        self._keep(~ended)
        return done
