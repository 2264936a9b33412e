"""How many sequences a pool carries: the chance that what N requests hold exceeds it.

For up to 64 requests the distribution of the sum is exact (convolution on a grid of the single request's
own range, mean kept exactly); above that a normal distribution corrected for skew, which by then agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import erfc, pi, sqrt
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from reasoningpool.sizing.kv.blocks import KVLayout
from reasoningpool.sizing.load.demand import ResidentTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EXACT_UP_TO: Final = 64
_CELLS: Final = 128  # grid points of one request; 64 x 127 sums stay below the transform's length
_TRANSFORM: Final = 8_192
_PHASES: Final = 64  # most lengths looked at to average over a block


@dataclass(frozen=True, slots=True)
class Paging:
    """What tokens cost in blocks of the groups that grow, on average over all lengths."""

    per_token: float
    rounding: float  # of a request of any length, by whole blocks

    @classmethod
    def of(cls, layout: KVLayout) -> Paging:
        """From what the layout says of long requests, whatever groups it has."""
        block = layout.block_size
        long = block << 10
        per_token = (layout.request_blocks(2 * long) - layout.request_blocks(long)) / long
        lengths = [long + k for k in range(1, block + 1, max(1, block // _PHASES))]
        beyond = sum(layout.request_blocks(length) - per_token * length for length in lengths) / len(lengths)
        return cls(per_token, max(0.0, beyond - layout.constant_blocks))


@dataclass(frozen=True, slots=True)
class BlockMixture:
    """What a request in flight holds in blocks: a mixture of uniform distributions on [start, start + length]."""

    weights: Floats  # of requests in flight
    requests: Floats  # of requests
    starts: Floats
    lengths: Floats

    @classmethod
    def of(cls, resident: ResidentTokens, layout: KVLayout, shared_tokens: int) -> BlockMixture:
        """From tokens to blocks: `per_token * T + rounding + constant`.

        One full-attention group takes `T / block` blocks, and rounding up costs `(block - 1) / (2 block)` blocks on
        average. Whole blocks of a shared prefix are counted once elsewhere.
        """
        paging = Paging.of(layout)
        own = np.maximum(resident.starts - shared_tokens, 0)
        starts = own * paging.per_token + paging.rounding + layout.constant_blocks
        return cls(resident.weights, resident.requests, starts, resident.lengths * paging.per_token)


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
    def of(cls, mixture: BlockMixture) -> BlockDemand:
        """From what one request in flight holds."""
        weights, starts, lengths = mixture.weights, mixture.starts, mixture.lengths
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
        return float(self.sum(sequences).tails(np.array([float(usable)]))[0])

    def sum(self, sequences: int) -> BlockSum:
        """Distribution of the blocks held by `sequences` requests."""
        if sequences <= EXACT_UP_TO:
            masses = np.fft.irfft(_power(self._spectrum, sequences), _TRANSFORM)[: sequences * (_CELLS - 1) + 1]
            return ExactSum(sequences * self._least, self._unit, masses)
        root = sqrt(sequences)
        return NormalSum(sequences * self.mean, self._deviation * root, self._skew / root)


class BlockSum(Protocol):
    """Blocks held by a number of requests; `levels` rise."""

    def tails(self, levels: Floats) -> Floats:
        """P(blocks held > level)."""
        ...

    def densities(self, levels: Floats) -> Floats:
        """Probability density per block.

        Beyond its highest point it is never let rise again, so that more room never means more.
        """
        ...


@dataclass(frozen=True, slots=True)
class ExactSum:
    """Masses on a grid of `unit` blocks from `least`."""

    least: float
    unit: float
    masses: Floats

    def tails(self, levels: Floats) -> Floats:
        """P(blocks held > level)."""
        beyond = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)
        last = len(self.masses) - 1
        cells = np.floor((levels - self.least) / self.unit + 1e-9)
        inside = beyond[np.clip(cells + 1, 0, last + 1).astype(int)]
        result: Floats = np.clip(np.where(cells >= last, 0.0, np.where(cells < 0, 1.0, inside)), 0.0, 1.0)
        return result

    def densities(self, levels: Floats) -> Floats:
        """Density between the grid's points, by interpolation."""
        masses, highest = self.masses.copy(), int(self.masses.argmax())
        masses[highest:] = np.maximum.accumulate(masses[highest:][::-1])[::-1]
        cells = (levels - self.least) / self.unit
        result: Floats = np.interp(cells, np.arange(len(masses)), masses, left=0.0, right=0.0)
        return np.maximum(result, 0.0) / self.unit


@dataclass(frozen=True, slots=True)
class NormalSum:
    """A normal distribution corrected for skew (first term of Edgeworth's series)."""

    mean: float
    deviation: float
    skew: float

    def tails(self, levels: Floats) -> Floats:
        """P(blocks held > level)."""
        if self.deviation <= 0:
            return (self.mean > levels).astype(float)
        z = (levels - self.mean) / self.deviation
        tail = np.array([0.5 * erfc(value / sqrt(2)) for value in z])
        result: Floats = np.clip(tail + _normal_density(z) * self.skew * (z * z - 1) / 6, 0.0, 1.0)
        return result

    def densities(self, levels: Floats) -> Floats:
        """Density of the corrected normal distribution."""
        if self.deviation <= 0:
            return np.zeros_like(levels)
        z = (levels - self.mean) / self.deviation
        result: Floats = np.maximum(_normal_density(z) * (1 + self.skew * (z**3 - 3 * z) / 6), 0.0) / self.deviation
        return result


def _power(spectrum: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Whole power by squaring: the general power of complex numbers takes ten times as long."""
    result = np.ones_like(spectrum)
    square = spectrum
    while exponent:
        if exponent & 1:
            result = result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return result


def _normal_density(z: Floats) -> Floats:
    density: Floats = np.exp(-z * z / 2) / sqrt(2 * pi)
    return density


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


def largest(allowed: Callable[[int], bool], *, up_to: int, at_least: int = 0) -> int:
    """The largest n from `at_least` to `up_to` with `allowed(n)`, which must hold for all smaller ones (bisection).

    `at_least` itself is not asked about.
    """
    low, high = at_least, up_to
    while low < high:
        middle = (low + high + 1) // 2
        if allowed(middle):
            low = middle
        else:
            high = middle - 1
    return low
