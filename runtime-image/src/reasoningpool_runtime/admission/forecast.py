"""The peak of resident KV blocks over the future of the running requests.

After "Past-Future Scheduler for LLM Serving under SLA Guarantees" (Gong et al., ASPLOS 2025, arXiv:2507.10150): every
sequence takes a token per step until its predicted end, when all it holds is free; so what they hold together rises
between ends, and the peak is at one of them. With the sequences sorted by what they still need, longest first, the i-th
end finds the first i of them resident, each grown by as much as the i-th still needed.

Lengths are uncertain, so the peak is taken in several scenarios, each a draw of all lengths. The paper takes the
largest peak of up to five draws; here the mean and the deviation of the peaks over fixed, stratified draws decide: a
request looked at again does not get another draw, and the margin is a number of deviations, which can be learnt
(`margin`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The future of some sequences in several scenarios.

    Arrays of shape (sequences, scenarios), by the end of the sequences, the last one first: when each ends, in steps
    from now; blocks of all that end with it or later, as they are now; blocks in use when it ends.
    """

    block_tokens: int
    ends: Floats
    now: Floats
    at_ends: Floats

    @classmethod
    def of(cls, held: Floats, remaining: Floats, fixed: Floats, block_tokens: int) -> Forecast:
        """From what each sequence holds and will still take.

        `held`: tokens each sequence holds now, of shape (sequences,); `remaining`: tokens it will still take, of shape
        (sequences, scenarios); `fixed`: whole blocks beside those that grow, of shape (sequences, scenarios), freed at
        the sequence's end too. Blocks are rounded up as the mean over all lengths, `(block - 1) / (2 block)` more than
        in proportion, which is the sizing's rule; the sum over sequences is what counts.
        """
        order = np.argsort(-remaining, axis=0)
        ends = np.take_along_axis(remaining, order, axis=0)
        own = held[:, None] / block_tokens + _rounding(block_tokens) + fixed
        now = np.cumsum(np.take_along_axis(own, order, axis=0), axis=0)
        resident = np.arange(1, len(held) + 1)[:, None]
        return cls(block_tokens, ends, now, now + resident * ends / block_tokens)

    def peaks(self) -> Floats:
        """Most blocks in use, in each scenario; 0 without sequences."""
        result: Floats = self.at_ends.max(axis=0, initial=0.0)
        return result

    def peaks_with(self, held: float, remaining: Floats, fixed: float) -> Floats:
        """The same with one sequence more, whose `remaining` has shape (scenarios,), without sorting again."""
        own = held / self.block_tokens + _rounding(self.block_tokens) + fixed
        beside = self.ends <= remaining
        with_it = self.at_ends + beside * (own + self.ends / self.block_tokens)
        longer = len(self.ends) - np.count_nonzero(beside, axis=0)
        before = np.concatenate([np.zeros((1, self.now.shape[1])), self.now])
        others = np.take_along_axis(before, longer[None, :], axis=0)[0]
        at_its_end = others + own + (longer + 1) * remaining / self.block_tokens
        result: Floats = np.maximum(with_it.max(axis=0, initial=0.0), at_its_end)
        return result


def _rounding(block_tokens: int) -> float:
    return (block_tokens - 1) / (2 * block_tokens)
