"""From P(resident > pool) to what users feel: how many requests the engine preempts and computes again.

The derivation, checked and calibrated against a request-level simulation of vLLM's scheduler
(`tests/support/scheduler_simulation.py`; `docs/sizing-concurrency.md` has the figures):

- Blocks held rise one token per step and running request, and fall by whole requests. The engine preempts each time
  the rising total meets the pool's end, so the number of preemptions per request is the growth per request times the
  probability density of the total there (Rice's formula).
- The victim is the request admitted last. It gives back what it holds, waits at the front and returns when the total
  without preemption would fit again. So while the total that N requests *would* hold is beyond the pool by what the k
  youngest hold, k of them wait, and the pool's end is met at the levels `pool + c_k`:

      preemptions per request = growth * sum over k of f_N(pool + c_k)
      c_k = sum over j = 1..k of (prompt + j * growth / N)

  with `f_N` the density of what N requests hold. No constant is fitted in this.
- A request that was preempted is the youngest when it returns and is likely to be preempted again, so fewer requests
  than preemptions are counted: `share = m / ((1 + a x) (1 + b m))` with m preemptions per request and x = growth over
  what a victim holds; a and b are fitted.

A load of long prompts and short outputs is hardly ever preempted even where the pool is full: requests wait for room
before they start. A load of short prompts and long outputs is preempted several times a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.sizing import constants as c

if TYPE_CHECKING:
    from reasoningpool.sizing.concurrency import BlockSum


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """What a saturated pool does with N sequences; all are means in the long run."""

    share: float  # of requests preempted at least once
    per_request: float  # preemptions over requests
    waiting: float  # of the N sequences, those that wait for room
    victim_blocks: float  # blocks a victim gives back


NONE: Final = Preemption(share=0.0, per_request=0.0, waiting=0.0, victim_blocks=0.0)


def preemption(held: BlockSum, sequences: int, free: float, *, growth: float, prompt: float) -> Preemption:
    """The expectation for `sequences` requests in `free` blocks.

    `held` is the distribution of what they would hold together if there were room. `growth` and `prompt` are
    blocks: the mean a request grows by, and the mean it holds when it starts.
    """
    youngest = np.arange(1, sequences + 1)
    victims = prompt + youngest * (growth / sequences)
    levels = free + np.concatenate([np.zeros(1), np.cumsum(victims[:-1])])
    density = held.densities(levels)
    total = float(density.sum())
    if total <= 0:
        return NONE
    waiting = float(held.tails(levels).sum())
    victim = float(np.dot(density, victims)) / total
    per_request = growth * total
    repeated = (1 + c.REPEAT_BY_GROWTH.value * growth / victim) * (1 + c.REPEAT_BY_LOAD.value * per_request)
    return Preemption(
        share=min(1.0, per_request / repeated), per_request=per_request, waiting=waiting, victim_blocks=victim
    )
