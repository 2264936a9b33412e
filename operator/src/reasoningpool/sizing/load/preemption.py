"""From P(resident > pool) to what users feel: how many requests the engine preempts and computes again.

The derivation, checked and calibrated against a request-level simulation of vLLM's scheduler
(`tests/support/scheduler_simulation.py`; `docs/sizing-concurrency.md` has the figures):

- Blocks held rise one token per step and running request, and fall by whole requests. The engine preempts each time
  the rising total meets the pool's end, so the number of preemptions per request is the growth per request times the
  probability density of the total there (Rice's formula).
- The victim is the request admitted last. It gives back what it holds, waits at the front and returns when the total
  without preemption would fit again. So while the total that N requests *would* hold is beyond the pool by what the k
  youngest hold, k of them wait, and the pool's end is met at the levels `pool + c_k`:

      preemptions per request = growth * sum over k of f_N(pool + c_k) * e_k
      c_k = v_1 + ... + v_k    v_j = prompt + age of the j-th youngest of N

  with `f_N` the density of what N requests hold.
- Requests that wait do not grow, which pulls the total back: `e_k = exp(-2 growth K_k / (N spread))` with
  `K_k = v_1 + 2 v_2 + ... + k v_k` and `spread = E[o^2] + 2 Var p`, from the drift and the variance of the total.
- Those that wait before their start hold up the queue the longer the larger they are, so the prompt is taken half way
  between the mean and the size-biased mean; the half is the one guess in this.
- A request that was preempted is the youngest when it returns and is likely to be preempted again, as long as the long
  runs last that filled the pool. So fewer requests than preemptions are counted: `share = m / ((1 + a x) (1 + b m))`
  with m preemptions per request and x = growth of the run that a token belongs to, `E[o^2] / E[o]`, over what a victim
  holds; a and b are fitted.

A load of long prompts and short outputs is hardly ever preempted even where the pool is full: requests wait for room
before they start. A load of short prompts and long outputs is preempted several times a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.sizing import constants as c

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reasoningpool.sizing.load.concurrency import BlockMixture, BlockSum

    Floats = NDArray[np.float64]

_AGES: Final = 48
_FINEST_AGE: Final = 1_000
_MOST_VICTIMS: Final = 4_096
_HALF_BLOCK: Final = 0.5  # blocks are whole: the pool's end lies half way to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """What a saturated pool does with N sequences; all are means in the long run."""

    share: float  # of requests preempted at least once
    per_request: float  # preemptions over requests
    waiting: float  # of the N sequences, those that wait for room
    victim_blocks: float  # blocks a victim gives back


NONE: Final = Preemption(share=0.0, per_request=0.0, waiting=0.0, victim_blocks=0.0)


@dataclass(frozen=True, slots=True)
class Turnover:
    """What comes and goes, in blocks: means over requests, and the ages of requests in flight."""

    growth: float  # E[o]
    biased_growth: float  # E[o^2] / E[o]
    spread: float  # E[o^2] + 2 Var p
    start: float  # what a request in the queue wants
    _ages: Floats
    _younger: Floats  # share of the requests in flight that are at most that old

    @classmethod
    def of(cls, mixture: BlockMixture) -> Turnover:
        """From what requests in flight hold."""
        requests, starts, lengths = mixture.requests, mixture.starts, mixture.lengths
        mean = float(np.dot(requests, starts))
        second = float(np.dot(requests, starts * starts))
        variance = max(0.0, second - mean * mean)
        biased = second / mean if mean > 0 else 0.0
        longest = float(lengths.max())
        ages = np.concatenate([np.zeros(1), np.geomspace(longest / _FINEST_AGE, longest, _AGES)])
        younger = np.minimum(ages[:, None] / lengths[None, :], 1.0) @ mixture.weights
        growth, squares = (float(np.dot(requests, lengths**power)) for power in (1, 2))
        return cls(growth, squares / growth, squares + 2 * variance, (mean + biased) / 2, ages, younger)

    def victims(self, sequences: int) -> Floats:
        """What the youngest, the second youngest, ... of N requests hold; the first few thousand of a very large N."""
        ranks = (np.arange(1, min(sequences, _MOST_VICTIMS) + 1) - 0.5) / sequences
        return self.start + np.interp(ranks, self._younger, self._ages)


def preemption(
    held: BlockSum, turnover: Turnover, sequences: int, free: float, *, overloaded: bool = False
) -> Preemption:
    """The expectation for `sequences` requests in `free` blocks.

    `held` is the distribution of what they would hold together if there were room. `overloaded`: the mean of that
    is beyond the pool, which is full all the time, so there is no pull back.
    """
    victims = turnover.victims(sequences)
    levels = free + _HALF_BLOCK + _before(victims)
    pull = _before(victims * np.arange(1, len(victims) + 1)) * (2 * turnover.growth / (sequences * turnover.spread))
    reached = np.ones(len(victims)) if overloaded else np.exp(-pull)
    density = held.densities(levels) * reached
    total = float(density.sum())
    if total <= 0:
        return NONE
    victim = float(np.dot(density, victims)) / total
    per_request = turnover.growth * total
    again = 1 + c.REPEAT_BY_GROWTH.value * turnover.biased_growth / victim
    repeated = again * (1 + c.REPEAT_BY_LOAD.value * per_request)
    return Preemption(
        share=min(1.0, per_request / repeated),
        per_request=per_request,
        waiting=float(np.dot(held.tails(levels), reached)),
        victim_blocks=victim,
    )


def _before(values: Floats) -> Floats:
    """Sums of all earlier values."""
    return np.concatenate([np.zeros(1), np.cumsum(values[:-1])])
