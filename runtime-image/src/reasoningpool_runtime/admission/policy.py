"""Whether a request may start: the forecast peak with it, plus the margin, against the pool. Knows no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool_runtime.admission.forecast import peaks
from reasoningpool_runtime.admission.ledger import Ledger, Share
from reasoningpool_runtime.admission.lengths import LengthHistory, Survival
from reasoningpool_runtime.admission.margin import Margin
from reasoningpool_runtime.admission.table import Table
from reasoningpool_runtime.admission.types import AdmissionConfig, AdmissionRequest, Capacity, Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SCENARIOS: Final = 32
_NEWS: Final = 1.1  # growth of an effort's running outputs that makes its lengths worth another look


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
        self._table, self._table_version = Table.of([], capacity), 0
        self._survivals: dict[str, tuple[int, int, int, Survival]] = {}
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
        found = self._peaks(share)
        return bool(found.mean() + self.margin.deviations * found.std() <= self.capacity.blocks)

    def forecast(self) -> Floats:
        """Peak blocks of what runs, in each scenario."""
        return self._peaks(None)

    def _peaks(self, candidate: Share | None) -> Floats:
        table = self._running_table()
        if candidate is not None:
            table = table.with_rows(Table.of([candidate], self.capacity))
        if not table.outputs:
            return np.zeros(SCENARIOS)
        generated = table.generated()
        totals = np.empty(table.ranks.shape, dtype=np.int64)
        for effort, members in table.efforts.items():
            made, caps = generated[members], table.caps[members]
            survival = self._survival(effort, made, int(caps.max()))
            totals[members] = survival.totals(made, caps, table.ranks[members])
        remaining = (totals - generated[:, None]).astype(np.float64)
        fixed = np.full(remaining.shape, float(self.capacity.blocks_per_sequence))
        table.add_shared(fixed, remaining)
        return peaks(table.own_tokens + generated, remaining, fixed, self.capacity.block_tokens)

    def _running_table(self) -> Table:
        if self._table_version != self.ledger.version:
            self._table = Table.of(self.ledger.shares, self.capacity)
            self._table_version = self.ledger.version
        return self._table

    def _survival(self, effort: str, generated: NDArray[np.int64], cap: int) -> Survival:
        """As of the effort's last finish, or since what runs has grown by a tenth without one."""
        history, known = self.history(effort), self._survivals.get(effort)
        progress = int(generated.sum())
        if known is None or known[0] != history.version or progress > _NEWS * known[1] or cap > known[2]:
            known = (history.version, progress, cap, history.survival(generated, cap))
            self._survivals[effort] = known
        return known[3]

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
