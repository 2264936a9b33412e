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
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Request:
    """One request: `tokens` have KV when it is computed up to now, `left` are still to be generated."""

    number: int
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

    requests: int = 0
    preempted: int = 0  # requests preempted at least once
    preemptions: int = 0
    recomputed_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    running_steps: float = 0.0
    held: list[float] = field(default_factory=list)  # blocks held, at points evenly spread over the steps

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
    """A replica under closed-loop load. `draw(n)` gives prompts and outputs of the next n requests."""

    def __init__(self, draw, *, pool: int, limit: int, block: int = 16, batched: int = 8192, constant: int = 0) -> None:
        self._draw = draw
        self._pool, self._limit, self._block, self._batched, self._constant = pool, limit, block, batched, constant
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._held = np.zeros(0, dtype=np.int64)  # tokens with a place in the pool
        self._left = np.zeros(0, dtype=np.int64)  # tokens still to generate
        self._todo = np.zeros(0, dtype=np.int64)  # tokens still to prefill
        self._created = 0

    def run(self, requests: int, *, warm_up: int | None = None, sample_every: int | None = None) -> Outcome:
        """Serve until `requests` have completed after the warm-up (default: four times the limit).

        Counted are the requests *completed* after it. With `sample_every` the blocks held are noted every so many
        steps.
        """
        warm_up = 4 * self._limit if warm_up is None else warm_up
        self._start(np.random.default_rng(self._limit))
        seen, completed = Outcome(), 0
        while completed < warm_up + requests:
            counting = completed >= warm_up
            steps, done, victims = self._advance(seen.held if counting else None, sample_every, seen.steps)
            completed += len(done)
            if not counting:
                continue
            seen.steps += steps[0]
            seen.running_steps += steps[0] * steps[1]
            seen.requests += len(done)
            seen.preempted += sum(1 for r in done if r.preemptions)
            seen.output_tokens += sum(r.output for r in done)
            seen.preemptions += len(victims)
            seen.recomputed_tokens += sum(victims)
        return seen

    def _blocks(self, tokens: np.ndarray) -> int:
        return int((-(-tokens // self._block)).sum()) + self._constant * len(tokens)

    def _advance(self, held: list[float] | None, every: int | None, at: int) -> tuple:
        victims = self._make_room()
        if not victims:
            self._admit()
        jump = self._free_steps(blocked=bool(victims))
        if held is not None and every:
            held.extend(
                float(self._blocks(self._held + k)) for k in range(-at % every, jump, every) if not self._todo.any()
            )
        return (jump, len(self._running)), self._step(jump), victims

    def _make_room(self) -> list[int]:
        """Preempt the last until every running request can take its next token."""
        victims: list[int] = []
        decoding = (self._todo == 0).astype(np.int64)
        needed = self._blocks(self._held + decoding)
        while needed > self._pool and len(self._running) > 1:
            last = self._running.pop()
            last.made = last.output - int(self._left[-1])
            last.preemptions += 1
            victims.append(int(self._held[-1]))
            needed -= self._blocks(self._held[-1:] + decoding[-1:])
            self._held, self._left, self._todo = self._held[:-1], self._left[:-1], self._todo[:-1]
            decoding = decoding[:-1]
            self._waiting.appendleft(last)
        return victims

    def _admit(self) -> None:
        decoding = int((self._todo == 0).sum())
        budget = self._batched - decoding
        # Prefills under way go first.
        for i in np.flatnonzero(self._todo):
            chunk = min(budget, int(self._todo[i]))
            budget -= chunk
        reserved = self._blocks(self._held + np.where(self._todo > 0, 0, 1))
        while len(self._running) < self._limit and budget > 0:
            if not self._waiting:
                self._refill()
            head = self._waiting[0]
            blocks = -(-head.tokens // self._block) + self._constant
            if reserved + blocks > self._pool and self._running:
                return
            reserved += blocks
            self._waiting.popleft()
            budget -= min(budget, head.tokens)
            self._running.append(head)
            # The whole prompt is taken as held from the start: it must fit on admission and lasts a step or two.
            self._held = np.append(self._held, head.tokens)
            self._left = np.append(self._left, head.output - head.made)
            self._todo = np.append(self._todo, head.tokens)

    def _refill(self) -> None:
        prompts, outputs = self._draw(256)
        for prompt, output in zip(prompts, outputs, strict=True):
            self._waiting.append(Request(self._created, int(prompt), int(output)))
            self._created += 1

    def _start(self, rng: np.random.Generator) -> None:
        """As if the server had run for long: length-biased requests at a uniform phase, as many as fit."""
        prompts, outputs = self._draw(50 * self._limit)
        chosen = rng.choice(len(outputs), size=self._limit, p=outputs / outputs.sum())
        free = self._pool
        for i in chosen:
            request = Request(-1, int(prompts[i]), int(outputs[i]))
            made = int(rng.integers(0, request.output))
            free -= -(-(request.prompt + made) // self._block) + self._constant
            if free < 0 and self._running:
                return
            self._running.append(request)
            self._held = np.append(self._held, request.prompt + made)
            self._left = np.append(self._left, request.output - made)
            self._todo = np.append(self._todo, 0)

    def _free_steps(self, *, blocked: bool) -> int:
        """Steps until something happens: one, or many when all decode and nothing can be admitted."""
        full = len(self._running) == self._limit
        if blocked or self._todo.any():
            return 1
        if not full and self._waiting:
            head = self._waiting[0]
            blocks = -(-head.tokens // self._block) + self._constant
            if self._blocks(self._held + 1) + blocks <= self._pool:
                return 1
        end = int(self._left.min())
        if self._blocks(self._held + end) <= self._pool:
            return end
        low, high = 1, end
        while low < high:
            middle = (low + high + 1) // 2
            if self._blocks(self._held + middle) <= self._pool:
                low = middle
            else:
                high = middle - 1
        return low

    def _step(self, steps: int) -> list[Request]:
        """Decode, or prefill within the budget; the requests that completed."""
        if self._todo.any():
            decoding = self._todo == 0
            budget = self._batched - int(decoding.sum())
            for i in np.flatnonzero(self._todo):
                chunk = min(budget, int(self._todo[i]))
                self._todo[i] -= chunk
                budget -= chunk
                if self._todo[i] == 0:
                    self._left[i] -= 1  # the end of a prefill gives a token, which has no KV yet
            self._held[decoding] += 1
            self._left[decoding] -= 1
        else:
            self._held += steps
            self._left -= steps
        ended = self._left <= 0
        if not ended.any():
            return []
        done = [r for r, over in zip(self._running, ended, strict=True) if over]
        self._running = [r for r, over in zip(self._running, ended, strict=True) if not over]
        keep = ~ended
        self._held, self._left, self._todo = self._held[keep], self._left[keep], self._todo[keep]
        return done
