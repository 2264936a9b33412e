"""How many sequences a pool carries: the chance that what N requests hold exceeds it.

For up to 64 requests the distribution of the sum is exact (convolution on a grid of the single request's
own range, mean kept exactly); above that a normal distribution corrected for skew, which by then agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import erfc, exp, pi, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.sizing.blocks import KVLayout
from reasoningpool.sizing.demand import ResidentTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EXACT_UP_TO: Final = 64
_CELLS: Final = 128  # grid points of one request; 64 x 127 sums stay below the transform's length
_TRANSFORM: Final = 8_192


@dataclass(frozen=True, slots=True)
class BlockDemand:
    """Distribution of the pool blocks one request in flight holds, with the sum of many."""

    mean: float
    _deviation: float
    _skew: float
    _least: float
    _unit: float
    _spectrum: NDArray[np.complex128] = field(repr=False)

    @classmethod
    def of(cls, resident: ResidentTokens, layout: KVLayout, shared_tokens: int) -> BlockDemand:
        """From tokens to blocks: `full_groups * (T / block + rounding) + constant`.

        Rounding up to a block costs `(block - 1) / (2 block)` blocks on average. Whole blocks of a shared
        prefix are counted once elsewhere.
        """
        per_token = layout.full_groups / layout.block_size
        rounding = layout.full_groups * (layout.block_size - 1) / (2 * layout.block_size)
        own = np.maximum(resident.starts - shared_tokens, 0)
        starts = own * per_token + rounding + layout.constant_blocks
        lengths = resident.lengths * per_token
        return cls._from_mixture(resident.weights, starts, lengths)

    @classmethod
    def _from_mixture(cls, weights: Floats, starts: Floats, lengths: Floats) -> BlockDemand:
        mean = float(np.dot(weights, starts + lengths / 2))
        low, high = starts - mean, starts - mean + lengths
        second = float(np.dot(weights, (low * low + low * high + high * high) / 3))
        third = float(np.dot(weights, (low + high) * (low * low + high * high) / 4))
        deviation = sqrt(max(second, 0.0))
        least = float(starts.min())
        unit = max(float((starts + lengths).max() - least) / (_CELLS - 1), 1e-12)
        masses = _grid_masses(weights, starts, lengths, least, unit)
        return cls(
            mean, deviation, third / deviation**3 if deviation > 0 else 0.0, least, unit,
            np.fft.rfft(masses, _TRANSFORM),
        )  # fmt: skip

    def overflow(self, sequences: int, usable: float) -> float:
        """P(blocks held by `sequences` requests > usable)."""
        if sequences <= EXACT_UP_TO:
            cells = int((usable - sequences * self._least) / self._unit + 1e-9)
            if usable < sequences * self._least:
                return 1.0
            if cells >= sequences * (_CELLS - 1):
                return 0.0
            sums = np.fft.irfft(self._spectrum**sequences, _TRANSFORM)
            return float(min(1.0, max(0.0, sums[cells + 1 :].sum())))
        spread = self._deviation * sqrt(sequences)
        if spread <= 0:
            return float(sequences * self.mean > usable)
        z = (usable - sequences * self.mean) / spread
        tail = 0.5 * erfc(z / sqrt(2))
        correction = exp(-z * z / 2) / sqrt(2 * pi) * self._skew * (z * z - 1) / (6 * sqrt(sequences))
        return min(1.0, max(0.0, tail + correction))


def _grid_masses(weights: Floats, starts: Floats, lengths: Floats, least: float, unit: float) -> Floats:
    """Masses on the grid that keep the mean: second differences of the stop-loss function E[(X - x)+].

    For a mixture of uniforms on [s, e] that function is `sum w ((e - x)+^2 - (s - x)+^2) / (2 (e - s))`.
    """
    low = (starts - least) / unit
    high = low + lengths / unit
    scale = weights * unit / (2 * lengths)
    grid = np.arange(-1.0, _CELLS + 1)
    stop_loss = _squared_excess(high, scale, grid) - _squared_excess(low, scale, grid)
    masses: Floats = stop_loss[:-2] - 2 * stop_loss[1:-1] + stop_loss[2:]
    return np.maximum(masses, 0)


def _squared_excess(points: Floats, scale: Floats, grid: Floats) -> Floats:
    """`sum scale * (point - x)+^2` at every x of the grid, by sums over the points beyond x."""
    order = np.argsort(points)
    beyond = np.searchsorted(points[order], grid, side="right")
    moments = [np.append(np.cumsum((scale * points**k)[order][::-1])[::-1], 0.0)[beyond] for k in range(3)]
    result: Floats = moments[2] - 2 * grid * moments[1] + grid * grid * moments[0]
    return result


def largest(allowed: Callable[[int], bool], *, up_to: int) -> int:
    """The largest n from 0 to `up_to` with `allowed(n)`, which must hold for all smaller ones (bisection)."""
    low, high = 0, up_to
    while low < high:
        middle = (low + high + 1) // 2
        if allowed(middle):
            low = middle
        else:
            high = middle - 1
    return low
