"""When requests come: at random (Poisson), or as a log recorded them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.requests.tier_requests import TierRequests

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reasoningpool.requests.log import Floats

SIMULATED: Final = 12_000  # requests of one run; a 99th percentile then rests on 80 or so
_LONGEST_STRETCH: Final = 20_000  # rows of a log that are replayed
_FEWEST: Final = 5_000  # requests measured; a thinned log is replayed with other choices until they are there
_MOST_REPLAYS: Final = 5
LEAST_RECORDED: Final = 200  # arrivals that make a pattern
_WARM_UP: Final = 0.2
_COOL_DOWN: Final = 0.9  # later arrivals see the load fall, since none follow
_IN_FLIGHT_FACTOR: Final = 12  # arrivals per request in flight, so that a run outlasts its warm-up by far


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Arrivals of one simulation: seconds, the request each one is (index into the tier's), and which ones count."""

    at: Floats
    request: NDArray[np.intp]
    counted: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Where arrivals come from: `stretch` is the part of the log that is replayed, None for random arrivals."""

    requests: TierRequests
    stretch: slice | None

    @classmethod
    def of(cls, requests: TierRequests) -> Traffic:
        """The log's own pattern where it has times, else random arrivals."""
        seconds = requests.seconds
        if seconds is None or len(seconds) < LEAST_RECORDED:
            return cls(requests=requests, stretch=None)
        stretch = _busiest(seconds, _LONGEST_STRETCH)
        pattern = seconds[stretch]
        return cls(requests=requests, stretch=stretch if pattern[-1] > pattern[0] else None)

    @property
    def recorded_rate(self) -> float | None:
        """Requests per second of the replayed stretch."""
        if self.stretch is None or self.requests.seconds is None:
            return None
        pattern = self.requests.seconds[self.stretch]
        return (len(pattern) - 1) / float(pattern[-1] - pattern[0])

    @property
    def words(self) -> str:
        """The arrivals in words."""
        if self.stretch is None or self.requests.seconds is None:
            return "arrivals at random (Poisson)"
        pattern = self.requests.seconds[self.stretch]
        part = "" if len(pattern) == len(self.requests.seconds) else "busiest "
        return (
            f"arrivals as recorded: the {part}{len(pattern):,} requests in {float(pattern[-1] - pattern[0]):,.0f} s,"
            " thinned or sped up to the rate (at random where hardly any would be left)"
        )

    def runs(self, rate: float, *, in_flight: int) -> list[Run]:
        """Arrivals at this mean rate; `in_flight` is how many requests the simulated replicas hold at a time."""
        if self.stretch is None:
            return [self._random(rate, in_flight)]
        recorded = self.recorded_rate
        assert recorded is not None  # a stretch has a rate
        share = rate / recorded
        expected = (self.stretch.stop - self.stretch.start) * min(share, 1.0)
        if expected * _MOST_REPLAYS < LEAST_RECORDED:  # so few are left that they hardly meet
            return [self._random(rate, in_flight)]
        replays = min(_MOST_REPLAYS, max(1, int(np.ceil(_FEWEST / max(expected, 1.0)))))
        return [self._replayed(share, seed) for seed in range(replays)]

    def _random(self, rate: float, in_flight: int) -> Run:
        count = max(SIMULATED, _IN_FLIGHT_FACTOR * in_flight)
        rng = np.random.default_rng(11)
        at = np.cumsum(rng.exponential(1 / rate, count))
        weights, total = self.requests.weights, len(self.requests.effort)
        if weights is None:
            chosen = rng.integers(0, total, count)
        else:
            cumulative = np.cumsum(weights)
            chosen = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
        places = np.arange(count)
        counted = (places >= _WARM_UP * count) & (places < _COOL_DOWN * count)
        return Run(at=at, request=np.minimum(chosen, total - 1).astype(np.intp), counted=counted)

    def _replayed(self, share: float, seed: int) -> Run:
        assert self.stretch is not None  # the caller's case
        assert self.requests.seconds is not None  # the same
        at = self.requests.seconds[self.stretch]
        chosen = np.arange(self.stretch.start, self.stretch.stop, dtype=np.intp)
        at = at - at[0]
        span = float(at[-1])
        if share < 1:
            kept = np.random.default_rng(100 + seed).random(len(at)) < share
            at, chosen = at[kept], chosen[kept]
        else:
            at, span = at / share, span / share
        return Run(at=at, request=chosen, counted=at >= _WARM_UP / 2 * span)


def _busiest(seconds: Floats, rows: int) -> slice:
    """The stretch of so many rows that took the least time."""
    if len(seconds) <= rows:
        return slice(0, len(seconds))
    start = int(np.argmin(seconds[rows - 1 :] - seconds[: len(seconds) - rows + 1]))
    return slice(start, start + rows)
