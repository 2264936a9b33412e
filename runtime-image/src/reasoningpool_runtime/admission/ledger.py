"""What the running requests hold of the KV pool, request by request.

Every total is the sum of what was added, so it returns to zero when all requests have ended, in whatever order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reasoningpool_runtime.admission.types import AdmissionRequest, Capacity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Whole blocks of a named prefix. Other lengths of the same name are prefixes of their own: counted once too often
# rather than once too seldom.
Prefix = tuple[str, int]


@dataclass(slots=True, eq=False)
class Share:
    """One request: per output, the tokens generated so far, or None once it has ended.

    `ranks` of shape (outputs, scenarios): which draw of its length each scenario takes.
    """

    request: AdmissionRequest
    ranks: NDArray[np.float64]
    admitted_at: float = 0.0
    generated: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.generated:
            self.generated = [0] * self.request.outputs


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a request's prompt lies in blocks."""

    prefix: Prefix | None  # shared with other requests
    shared: int  # whole blocks that all outputs of the request share, prefix left out
    own_tokens: int  # of the prompt, that every output holds for itself


def layout(request: AdmissionRequest, block_tokens: int) -> Blocks:
    """Whole blocks of the prompt are shared by all outputs; the last, broken one is copied by each."""
    prefix_blocks = request.prefix_tokens // block_tokens if request.prefix is not None else 0
    whole = request.prompt_tokens // block_tokens
    prefix = (request.prefix, prefix_blocks) if request.prefix is not None and prefix_blocks else None
    return Blocks(prefix, whole - prefix_blocks, request.prompt_tokens % block_tokens)


class Ledger:
    """Running requests in the order of their admission."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._shares: dict[int, Share] = {}
        self._prefixes: Counter[Prefix] = Counter()
        self.resident_blocks = 0
        self.committed_blocks = 0
        self.sequences = 0
        self.version = 0  # rises when a request or an output starts or ends

    def __len__(self) -> int:
        return len(self._shares)

    def __contains__(self, share: Share) -> bool:
        return id(share) in self._shares

    @property
    def shares(self) -> list[Share]:
        """In the order of admission."""
        return list(self._shares.values())

    def holds(self, prefix: Prefix) -> bool:
        """Whether a running request has this prefix in the pool."""
        return prefix in self._prefixes

    def start(self, share: Share, now: float) -> None:
        """The request is sent to the engine."""
        resident, committed = self.needs(share.request)
        self._shares[id(share)] = share
        share.admitted_at = now
        if prefix := layout(share.request, self.capacity.block_tokens).prefix:
            self._prefixes[prefix] += 1
        self.resident_blocks += resident
        self.committed_blocks += committed
        self.sequences += share.request.outputs
        self.version += 1

    def needs(self, request: AdmissionRequest) -> tuple[int, int]:
        """Blocks that the request would add at its start and at the most."""
        blocks = layout(request, self.capacity.block_tokens)
        shared = blocks.shared
        if blocks.prefix and blocks.prefix not in self._prefixes:
            shared += blocks.prefix[1]
        start = shared + request.outputs * self._sequence_blocks(blocks.own_tokens)
        return start, shared + request.outputs * self._sequence_blocks(blocks.own_tokens + request.max_output_tokens)

    def set(self, share: Share, output: int, tokens: int) -> None:
        """The output has come to so many tokens, at most its cap. Nothing after its end."""
        before = share.generated[output]
        if before is None or share not in self:
            return
        after = min(tokens, share.request.max_output_tokens)
        own = share.request.prompt_tokens % self.capacity.block_tokens
        self.resident_blocks += self._sequence_blocks(own + after) - self._sequence_blocks(own + before)
        share.generated[output] = after

    def end_output(self, share: Share, output: int) -> int | None:
        """One of several outputs has ended and its blocks are free; its length, or None if it had ended before."""
        tokens = share.generated[output]
        if tokens is None or share not in self:
            return None
        own = share.request.prompt_tokens % self.capacity.block_tokens
        self.resident_blocks -= self._sequence_blocks(own + tokens)
        self.committed_blocks -= self._sequence_blocks(own + share.request.max_output_tokens)
        self.sequences -= 1
        self.version += 1
        share.generated[output] = None
        return tokens

    def end(self, share: Share) -> list[int]:
        """The request has ended; the lengths of the outputs that still ran. Nothing a second time."""
        if share not in self:
            return []
        lengths = [self.end_output(share, output) for output in range(share.request.outputs)]
        del self._shares[id(share)]
        blocks = layout(share.request, self.capacity.block_tokens)
        freed = blocks.shared
        if blocks.prefix:
            self._prefixes[blocks.prefix] -= 1
            if not self._prefixes[blocks.prefix]:
                del self._prefixes[blocks.prefix]
                freed += blocks.prefix[1]
        self.resident_blocks -= freed
        self.committed_blocks -= freed
        self.version += 1
        return [tokens for tokens in lengths if tokens is not None]

    def overflow(self) -> int:
        """Requests the engine has to preempt, the last admitted first, until what the others hold fits."""
        excess, victims = self.resident_blocks - self.capacity.blocks, 0
        for share in reversed(self._shares.values()):
            if excess <= 0 or victims + 1 == len(self._shares):
                break
            excess -= self._resident(share)
            victims += 1
        return victims

    def _resident(self, share: Share) -> int:
        blocks = layout(share.request, self.capacity.block_tokens)
        own = sum(self._sequence_blocks(blocks.own_tokens + n) for n in share.generated if n is not None)
        return blocks.shared + own

    def _sequence_blocks(self, tokens: int) -> int:
        return -(-tokens // self.capacity.block_tokens) + self.capacity.blocks_per_sequence
