"""The peak of resident KV blocks over the future of the running requests.

After "Past-Future Scheduler for LLM Serving under SLA Guarantees" (Gong et al., ASPLOS 2025, arXiv:2507.10150): every sequence takes a token per step until its predicted end, when all it holds is free; so what they hold together
rises between ends, and the peak is at one of them. With the sequences sorted by what they still need, longest first,
the i-th end finds the first i of them resident, each grown by as much as the i-th still needed.

Lengths are uncertain, so the peak is taken in several scenarios, each a draw of all lengths. The paper takes the
largest peak of up to five draws; here the mean and the deviation of the peaks over fixed, stratified draws decide: a
request looked at again does not get another draw, and the margin is a number of deviations, which can be learnt
(`margin`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def peaks(held: Floats, remaining: Floats, fixed: Floats, block_tokens: int) -> Floats:
    """Peak blocks in each scenario.

    `held`: tokens each sequence holds now, of shape (sequences,), at least one; `remaining`: tokens it will still take, of shape
    (sequences, scenarios); `fixed`: whole blocks beside those that grow, of shape (sequences, scenarios), freed at the
    sequence's end too. Blocks are rounded up as the mean over all lengths, `(block - 1) / (2 block)` more than in
    proportion, which is the sizing's rule; the sum over sequences is what counts.
    """
    order = np.argsort(-remaining, axis=0, kind="stable")
    ends = np.take_along_axis(remaining, order, axis=0)
    rounding = (block_tokens - 1) / (2 * block_tokens)
    now = held[:, None] / block_tokens + rounding + fixed
    before = np.cumsum(np.take_along_axis(now, order, axis=0), axis=0)
    resident_sequences = np.arange(1, len(held) + 1)[:, None]
    result: Floats = (before + resident_sequences * ends / block_tokens).max(axis=0)
    return result
