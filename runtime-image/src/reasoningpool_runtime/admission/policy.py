"""Whether a request may start: the forecast peak with it, plus the margin, against the pool. Knows no clock."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool_runtime.admission.forecast import peaks
from reasoningpool_runtime.admission.ledger import Ledger, Share, layout
from reasoningpool_runtime.admission.lengths import LengthHistory, Survival
from reasoningpool_runtime.admission.margin import Margin
from reasoningpool_runtime.admission.types import AdmissionConfig, AdmissionRequest, Capacity, Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SCENARIOS: Final = 32


class ForecastPolicy:
    """The ledger with the histories and the margin. `seed` fixes the draws."""

    def __init__(self, capacity: Capacity, config: AdmissionConfig, seed: int = 0) -> None:
        self.capacity = capacity
        self.config = config
        self.ledger = Ledger(capacity)
        self.margin = Margin(config.preempted_share)
        self.overflows = 0
        self._engine_counts = False
        self._overflow = 0  # requests preempted just now, as far as the ledger tells
        self._histories: dict[str, LengthHistory] = {}
        self._rng = np.random.default_rng(seed)
        self._ranks = (np.arange(SCENARIOS) + 0.5) / SCENARIOS

    def configure(self, config: AdmissionConfig) -> None:
        """Takes effect with the next decision; histories and margin are kept."""
        self.config = config
        self.margin.target = config.preempted_share
        for effort, history in self._histories.items():
            history.expect(config.expected_output_tokens.get(effort, ()))

    def share(self, request: AdmissionRequest) -> Share:
        """A request that may start later, with its draws."""
        ranks = np.tile(self._ranks, (request.outputs, 1))
        return Share(request, self._rng.permuted(ranks, axis=1))

    def fits_alone(self, request: AdmissionRequest) -> bool:
        """Whether an empty pool has room for the prompt and the first token of every output."""
        empty = Ledger(self.capacity)
        start, _ = empty.needs(request)
        limit = self.capacity.max_sequences
        return start + request.outputs <= self.capacity.blocks and (limit is None or request.outputs <= limit)

    def may_start(self, share: Share) -> bool:
        """Whether the pool is expected to carry the request beside those that run."""
        ledger, request = self.ledger, share.request
        limit = self.capacity.max_sequences
        if limit is not None and ledger.sequences + request.outputs > limit:
            return False
        if self.config.max_running is not None and len(ledger) >= self.config.max_running:
            return False
        start, most = ledger.needs(request)
        if ledger.committed_blocks + most <= self.capacity.blocks or not len(ledger):
            return True
        if ledger.resident_blocks + start + ledger.sequences + request.outputs > self.capacity.blocks:
            return False  # the prompt would wait in the engine for the next tokens of the others
        found = self.forecast(share)
        return bool(found.mean() + self.margin.deviations * found.std() <= self.capacity.blocks)

    def forecast(self, candidate: Share | None = None) -> Floats:
        """Peak blocks in each scenario, with the candidate if there is one."""
        shares = self.ledger.shares + ([candidate] if candidate else [])
        rows = [(share, i, made) for share in shares for i, made in enumerate(share.generated) if made is not None]
        generated = np.array([made for _, _, made in rows], dtype=np.int64)
        totals = self._totals(rows, generated)
        remaining = (totals - generated[:, None]).astype(float)
        blocks = [layout(share.request, self.capacity.block_tokens) for share, _, _ in rows]
        held = np.array([each.own_tokens for each in blocks], dtype=np.float64) + generated.astype(np.float64)
        fixed = np.full(remaining.shape, float(self.capacity.blocks_per_sequence))
        groups: dict[object, tuple[int, list[int]]] = {}
        for row, ((share, _, _), each) in enumerate(zip(rows, blocks, strict=True)):
            groups.setdefault(id(share), (each.shared, []))[1].append(row)
            if each.prefix:
                groups.setdefault(each.prefix, (each.prefix[1], []))[1].append(row)
        _add_shared(fixed, remaining, groups)
        return peaks(held, remaining, fixed, self.capacity.block_tokens)

    def _totals(self, rows: list[tuple[Share, int, int]], generated: NDArray[np.int64]) -> NDArray[np.int64]:
        by_effort: dict[str, list[int]] = defaultdict(list)
        for row, (share, _, _) in enumerate(rows):
            by_effort[share.request.effort].append(row)
        totals = np.zeros((len(rows), SCENARIOS), dtype=np.int64)
        for effort, members in by_effort.items():
            caps = np.array([rows[row][0].request.max_output_tokens for row in members], dtype=np.int64)
            ranks = np.stack([rows[row][0].ranks[rows[row][1]] for row in members])
            survival = self.survival(effort, [rows[row][2] for row in members], int(caps.max()))
            totals[members] = survival.totals(generated[members], caps, ranks)
        return totals

    def survival(self, effort: str, running: list[int], cap: int) -> Survival:
        """What is known of an effort's lengths now."""
        return self.history(effort).survival(running, cap)

    def history(self, effort: str) -> LengthHistory:
        """The effort's history; a new one has the stated lengths only."""
        found = self._histories.get(effort)
        if found is None:
            found = LengthHistory(self.config.expected_output_tokens.get(effort, ()))
            self._histories[effort] = found
        return found

    def start(self, share: Share, now: float) -> None:
        """The request is sent to the engine."""
        self.ledger.start(share, now)

    def grow(self, share: Share, output: int, tokens: int) -> None:
        """So many tokens more were generated."""
        made = share.generated[output]
        if made is not None and tokens > 0:
            self.ledger.set(share, output, made + tokens)
            self._watch_overflow()

    def grow_to(self, share: Share, tokens: int) -> None:
        """Every output that runs has by estimate come so far."""
        for output, made in enumerate(share.generated):
            if made is not None:
                self.grow(share, output, tokens - made)

    def correct(self, share: Share, tokens: int) -> None:
        """At the end: what all outputs together have generated, instead of what was seen or estimated.

        Several outputs share the difference evenly: a response tells their sum only.
        """
        running = [made for made in share.generated if made is not None]
        if len(running) < share.request.outputs or share not in self.ledger:
            return
        each, rest = divmod(tokens - sum(running), len(running))
        for output, made in enumerate(running):
            self.ledger.set(share, output, max(0, made + each + (output < rest)))

    def observe_preemptions(self, count: int) -> None:
        """The engine's own count since the last call; from the first call on the ledger's is not used."""
        self._engine_counts = True
        if count:
            self.overflows += count
            self.margin.preempted(count)

    def _watch_overflow(self) -> None:
        if self._engine_counts or self.ledger.resident_blocks <= self.capacity.blocks:
            self._overflow = 0
            return
        victims = self.ledger.overflow()
        if victims > self._overflow:
            self.overflows += victims - self._overflow
            self.margin.preempted(victims - self._overflow)
        self._overflow = victims

    def end_output(self, share: Share, output: int) -> None:
        """One of several outputs has ended by itself or by its cap."""
        tokens = self.ledger.end_output(share, output)
        if tokens is not None:
            self._learn(share, [tokens], Outcome.COMPLETED)

    def end(self, share: Share, outcome: Outcome) -> None:
        """The request has ended. Nothing a second time."""
        if share in self.ledger:
            self._learn(share, self.ledger.end(share), outcome)

    def _learn(self, share: Share, lengths: list[int], outcome: Outcome) -> None:
        history = self.history(share.request.effort)
        for tokens in lengths:
            # What reached its cap, or was cut off, is only known to be as long.
            ended = outcome is Outcome.COMPLETED and tokens < share.request.max_output_tokens
            history.record(tokens, ended=ended)
        if outcome is Outcome.COMPLETED:
            self.margin.finished(len(lengths))


def _add_shared(fixed: Floats, remaining: Floats, groups: dict[object, tuple[int, list[int]]]) -> None:
    """Give each group's shared blocks to the member that ends last, scenario by scenario."""
    scenarios = np.arange(fixed.shape[1])
    for blocks, members in groups.values():
        if len(members) == 1:
            fixed[members[0]] += blocks
        elif blocks:
            last = np.array(members)[remaining[members].argmax(axis=0)]
            fixed[last, scenarios] += blocks
