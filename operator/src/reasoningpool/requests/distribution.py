"""Requests drawn from percentiles: what `--distribution p50,p90,p99` stands for."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.requests.errors import CapacityError
from reasoningpool.requests.log import MOST_TOKENS
from reasoningpool.sizing.load.demand import log_tokens
from reasoningpool.sizing.types import TokenQuantiles

if TYPE_CHECKING:
    from reasoningpool.requests.log import Floats, Ints

POINTS: Final = 20_000
PERCENTILES: Final = (0.5, 0.9, 0.99)  # what is stated and shown of lengths and times


def parse_percentiles(text: str) -> TokenQuantiles:
    """`p50,p90,p99` in tokens.

    Raises:
        CapacityError: these are not three rising positive numbers.
    """
    parts = text.split(",")
    try:
        values = [int(part) for part in parts]
    except ValueError:
        values = []
    if len(values) != 3 or not 1 <= values[0] <= values[1] <= values[2] <= MOST_TOKENS:
        raise CapacityError(
            f"{text[:60]!r} is not p50,p90,p99: three whole numbers of tokens that do not fall, 1 to {MOST_TOKENS:,}"
        )
    return TokenQuantiles(p50=values[0], p90=values[1], p99=values[2])


def lengths(quantiles: TokenQuantiles, *, points: int = POINTS, seed: int = 1) -> Ints:
    """Lengths with these percentiles: lognormal between and beyond them, evenly spread over the distribution.

    The curve is the one of the sizing. The order is shuffled by `seed`, so that two columns drawn with different seeds
    are independent.
    """
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((i + 0.5) / points) for i in range(points)])
    values = np.exp(log_tokens(quantiles, scores)).clip(1, MOST_TOKENS)
    return np.random.default_rng(seed).permutation(np.rint(values).astype(np.int32))


def weighted_quantiles(values: Ints | Floats, weights: Floats | None, shares: tuple[float, ...]) -> tuple[float, ...]:
    """The smallest values that at least these shares of the weight do not exceed."""
    if weights is None:
        return tuple(float(q) for q in np.quantile(values, shares, method="inverted_cdf"))
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    places = np.searchsorted(cumulative, np.array(shares) * cumulative[-1] * (1 - 1e-12))
    return tuple(float(values[order[min(place, len(order) - 1)]]) for place in places)


def percentiles(values: Ints, weights: Floats | None = None) -> TokenQuantiles:
    """p50, p90 and p99, at least 1 token each as the resource wants them."""
    p50, p90, p99 = (max(1, round(q)) for q in weighted_quantiles(values, weights, PERCENTILES))
    return TokenQuantiles(p50=p50, p90=p90, p99=p99)
