"""A pool under load: what N sequences do to it, by the distribution of what requests hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from reasoningpool.sizing import latency
from reasoningpool.sizing.frame import Frame
from reasoningpool.sizing.load.concurrency import BlockDemand, BlockMixture, Paging, largest
from reasoningpool.sizing.load.demand import ResidentTokens, resident_tokens
from reasoningpool.sizing.load.preemption import NONE, Preemption, Turnover, preemption

_OVERLOADS: Final = (1.0, 1.04, 1.08, 1.15, 1.3, 1.6)  # times what the pool carries on average


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The frame of a tier with its requests in flight."""

    frame: Frame
    resident: ResidentTokens
    demand: BlockDemand
    turnover: Turnover
    paging: Paging

    @classmethod
    def of(cls, frame: Frame) -> Load:
        """The load of the frame's efforts."""
        resident = resident_tokens(
            frame.inputs, frame.efforts, batched_tokens=frame.batched_tokens, shared_tokens=frame.shared_tokens
        )
        mixture = BlockMixture.of(resident, frame.layout, frame.shared_tokens)
        turnover = Turnover.of(mixture)
        return cls(
            frame=frame,
            resident=resident,
            demand=BlockDemand.of(mixture),
            turnover=turnover,
            paging=Paging.of(frame.layout),
        )

    def worst_fits(self, sequences: int) -> bool:
        """Whether every request may be at the largest footprint at once."""
        own = self.frame.largest_blocks - self.frame.shared_blocks
        return sequences * own <= self.frame.free_blocks(sequences)

    def overflow(self, sequences: int) -> float:
        """P(blocks that `sequences` requests hold > blocks there are); 0 when the worst case fits."""
        if self.worst_fits(sequences):
            return 0.0
        return self.demand.overflow(sequences, self.frame.free_blocks(sequences))

    def preemption(self, sequences: int) -> Preemption:
        """What a saturated pool does with `sequences`; nothing is preempted where the worst case fits.

        Sequences beyond what the pool carries only wait, so the figures do not fall again there.
        """
        if self.worst_fits(sequences):
            return NONE
        free = self.frame.free_blocks(sequences)
        carried = self.carried(sequences)
        if sequences <= carried:
            return preemption(self.demand.sum(sequences), self.turnover, sequences, free)
        numbers = sorted({sequences, *(min(sequences, max(1, round(factor * carried))) for factor in _OVERLOADS)})
        found = [
            preemption(self.demand.sum(number), self.turnover, number, free, overloaded=True) for number in numbers
        ]
        most = max(found, key=lambda each: each.per_request)
        # On average half of what the next request wants is free.
        room = max(1.0, (free - most.victim_blocks / 2) / self.demand.mean)
        runs = max(number - each.waiting for number, each in zip(numbers, found, strict=True))
        return replace(most, share=max(each.share for each in found), waiting=max(0.0, sequences - min(runs, room)))

    def within(self, sequences: int, risk: float) -> bool:
        """Whether at most `risk` of the requests are preempted, and more run with it than with fewer sequences.

        Beyond what the pool carries on average a further sequence would wait for room instead of running.
        """
        if self.worst_fits(sequences):
            return True
        return sequences <= self.carried(sequences) and self.preemption(sequences).share <= risk

    def most_in_the_worst_case(self, up_to: int) -> int:
        """The largest number that `worst_fits`, 0 when not even one does.

        More sequences never leave more memory, so what one leaves bounds it from above, and what that many leave
        from below.
        """
        own = max(1, self.frame.largest_blocks - self.frame.shared_blocks)
        most = max(0, min(up_to, self.frame.free_blocks(1) // own))
        least = max(0, min(most, self.frame.free_blocks(most) // own))
        return largest(self.worst_fits, at_least=least, up_to=most)

    def most_within(self, risk: float, *, at_least: int, up_to: int) -> int:
        """The largest number `within` the risk, at least the stated one."""
        most = min(up_to, int(max(0.0, self.carried(at_least))))
        return max(at_least, largest(lambda n: self.within(n, risk), at_least=at_least, up_to=most))

    def carried(self, sequences: int) -> float:
        """Requests the pool holds on average, with the memory that this many sequences leave."""
        return self.frame.free_blocks(sequences) / self.demand.mean

    def tokens_of(self, blocks: float) -> float:
        """Tokens a request has computed that holds this many blocks of its own."""
        paging = self.paging
        return max(0.0, blocks - self.frame.layout.constant_blocks) / paging.per_token if paging.per_token > 0 else 0.0

    def time_per_output_token_ms(self, sequences: float) -> float:
        """Milliseconds of a decode step by the bandwidth model."""
        kv_bytes = sequences * self.demand.mean * self.frame.layout.bytes_per_block
        return latency.modelled_time_per_output_token_ms(
            self.frame.inputs, sequences=max(1, round(sequences)), kv_bytes_read=kv_bytes
        )
