"""A pool under load: what N sequences do to it, by the distribution of what requests hold."""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool.sizing import latency
from reasoningpool.sizing.concurrency import BlockDemand
from reasoningpool.sizing.demand import ResidentTokens, resident_tokens
from reasoningpool.sizing.frame import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The frame of a tier with its requests in flight."""

    frame: Frame
    resident: ResidentTokens
    demand: BlockDemand

    @classmethod
    def of(cls, frame: Frame) -> Load:
        """The load of the frame's efforts."""
        resident = resident_tokens(frame.inputs, frame.efforts)
        return cls(frame=frame, resident=resident, demand=BlockDemand.of(resident, frame.layout, frame.shared_tokens))

    def worst_fits(self, sequences: int) -> bool:
        """Whether every request may be at the largest footprint at once."""
        own = self.frame.largest_blocks - self.frame.shared_blocks
        return sequences * own <= self.frame.free_blocks(sequences)

    def overflow(self, sequences: int) -> float:
        """P(blocks that `sequences` requests hold > blocks there are); 0 when the worst case fits."""
        if self.worst_fits(sequences):
            return 0.0
        return self.demand.overflow(sequences, self.frame.free_blocks(sequences))

    def preempted_share(self, sequences: int) -> float:
        """Expected share of requests preempted at least once, at full load."""
        return self.overflow(sequences)

    def preemptions_per_request(self, sequences: int) -> float:
        """Expected number of preemptions over requests; a request may be preempted more than once."""
        return self.preempted_share(sequences)

    @property
    def resident_at_preemption(self) -> float:
        """Tokens a request holds when it is preempted, which are computed again: the mean resident of its own."""
        return max(0.0, self.resident.mean - self.frame.shared_tokens)

    def running(self, sequences: int) -> float:
        """Mean number of requests that run at full load: never more than the pool carries on average."""
        return max(1.0, min(float(sequences), self.frame.free_blocks(sequences) / self.demand.mean))

    def time_per_output_token_ms(self, sequences: float) -> float:
        """Milliseconds of a decode step by the bandwidth model."""
        kv_bytes = sequences * self.demand.mean * self.frame.layout.bytes_per_block
        return latency.modelled_time_per_output_token_ms(
            self.frame.inputs, sequences=max(1, round(sequences)), kv_bytes_read=kv_bytes
        )
