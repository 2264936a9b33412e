"""vLLM's own length histograms, from a saved `/metrics` page or from Prometheus, as requests.

A histogram tells how many requests fell between two bounds and their sum. Within a bucket lengths are spread
so that the mean over all buckets is the histogram's own mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from reasoningpool.requests.errors import CapacityError, LogError
from reasoningpool.requests.log import MOST_TOKENS, RequestLog

if TYPE_CHECKING:
    from prometheus_client import Metric

    from reasoningpool.requests.log import Floats, Ints

PROMPT: Final = "vllm:request_prompt_tokens"
OUTPUT: Final = "vllm:request_generation_tokens"
_POINTS: Final = 32  # of a bucket
# prometheus_client 0.26 writes samples so when OpenMetrics is asked for without UTF-8 names, as by Prometheus 2;
# comments keep the colon.
_ESCAPED: Final = re.compile(r"^vllm_request_", re.MULTILINE)
_PAIRED: Final = 20_000  # requests drawn from two histograms
_BEYOND: Final = 2.0  # the last, open bucket is taken to reach this many times its lower bound


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound, rising, the last bound infinite; `total` is the sum of all values."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        """Number of requests."""
        return self.counts[-1] if self.counts else 0.0

    @classmethod
    def of(cls, buckets: Mapping[float, float], total: float) -> Histogram:
        """From cumulative counts by bound.

        Raises:
            CapacityError: the open bucket is missing, or a count is no number.
        """
        bounds = tuple(sorted(buckets))
        counts = tuple(buckets[bound] for bound in bounds)
        if not bounds or bounds[-1] != inf:
            raise CapacityError('has no bucket le="+Inf"')
        if any(not isfinite(count) or count < 0 for count in (*counts, total)):
            raise CapacityError("has counts that are not numbers")
        # Engines whose histograms have different bounds leave dents when their counts are added up.
        counts = tuple(accumulate(counts, max))
        return cls(bounds, counts, total)

    def lengths(self) -> tuple[Floats, Floats]:
        """Lengths and their weights: points in every bucket, placed so that their mean is `total / count`."""
        edges = [0.0, *self.bounds[:-1]]
        open_edge = min(max(edges[-1], 1.0) * _BEYOND, float(MOST_TOKENS))
        uppers = [*self.bounds[:-1], open_edge]
        numbers = np.maximum(np.diff(np.array([0.0, *self.counts])), 0.0)
        used = numbers > 0
        low, high = np.array(edges)[used], np.array(uppers)[used]
        numbers = numbers[used]
        weights = np.repeat(numbers / _POINTS, _POINTS)
        places = (np.arange(_POINTS) + 0.5) / _POINTS
        mean = self.total / self.count

        def at(power: float) -> Floats:
            spread: Floats = low[:, None] + (high - low)[:, None] * places[None, :] ** power
            return np.maximum(spread.ravel(), 1.0)

        small, large = 1e-2, 1e2  # from all at the upper bounds to all at the lower ones
        for _ in range(60):
            power = (small * large) ** 0.5
            if float(np.dot(at(power), weights)) / self.count > mean:
                small = power
            else:
                large = power
        return at((small * large) ** 0.5), weights


def page_histograms(text: str) -> dict[str, dict[str, Histogram]]:
    """The two length histograms of a `/metrics` page by model name and metric.

    All engines of the page are added up, and so are pages that were put into one file.

    Raises:
        LogError: the page is none, or has no such histogram.
    """
    text = _ESCAPED.sub("vllm:request_", text)
    sums: dict[tuple[str, str], _Sums] = {}
    try:
        for family in text_string_to_metric_families(text):
            if family.name in {PROMPT, OUTPUT}:
                _add(family, sums)
    except (ValueError, KeyError, IndexError, RecursionError) as error:
        raise LogError(f"is not a metrics page: {error!s:.120}", line=_bad_line(text)) from None
    if not any(metric == OUTPUT for _, metric in sums):
        raise LogError(f"has no histogram {OUTPUT}: save the /metrics page of a vLLM server that has served requests")
    found: dict[str, dict[str, Histogram]] = {}
    for (model, metric), sum_ in sums.items():
        try:
            found.setdefault(model, {})[metric] = Histogram.of(sum_.buckets, sum_.total)
        except CapacityError as error:
            raise LogError(f"{metric} of model {model!r} {error}") from None
    return found


@dataclass(slots=True)
class _Sums:
    buckets: dict[float, float] = field(default_factory=dict)
    total: float = 0.0


def _add(family: Metric, sums: dict[tuple[str, str], _Sums]) -> None:
    for sample in family.samples:
        sum_ = sums.setdefault((sample.labels.get("model_name", ""), family.name), _Sums())
        if sample.name.endswith("_bucket"):
            bound = float(sample.labels["le"])
            sum_.buckets[bound] = sum_.buckets.get(bound, 0.0) + float(sample.value)
        elif sample.name.endswith("_sum"):
            sum_.total += float(sample.value)


def _bad_line(text: str) -> int | None:
    """The first line that the parser refuses by itself."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            list(text_string_to_metric_families(line + "\n"))
        except (ValueError, KeyError, IndexError, RecursionError):
            return number
    return None


def requests_of(histograms: Mapping[str, Histogram]) -> RequestLog:
    """Requests with these lengths; prompts and outputs are drawn independently, since the histograms do not pair them.

    Raises:
        CapacityError: no request is counted.
    """
    output = histograms.get(OUTPUT)
    if output is None or output.count <= 0:
        raise CapacityError(f"{OUTPUT} counts no request yet")
    notes = ["lengths inside a bucket of vLLM's histograms are spread to keep the histogram's mean"]
    inner = output.counts[-2] if len(output.counts) > 1 else 0.0
    if output.count > inner:
        last = output.bounds[-2] if len(output.bounds) > 1 else 1.0
        notes.append(
            f"{100 * (output.count - inner) / output.count:.1f} % of runs lie beyond the last bound of {last:,.0f}"
            f" tokens; they are taken to end at {_BEYOND:g} times that at most"
        )
    prompt = histograms.get(PROMPT)
    prompts = None
    if prompt is not None and prompt.count > 0:
        prompts = _drawn(prompt, seed=2)
        notes.append("prompt and output lengths are taken as independent: the histograms do not pair them")
    drawn = _drawn(output, seed=3)
    return RequestLog(
        output=drawn, prompt=prompts, weights=np.ones(len(drawn)), runs=round(output.count), notes=tuple(notes)
    )


def _drawn(histogram: Histogram, *, seed: int) -> Ints:
    """Evenly spaced quantiles in random order."""
    values, weights = histogram.lengths()
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    wanted = (np.arange(_PAIRED) + 0.5) / _PAIRED * cumulative[-1]
    drawn = values[order[np.searchsorted(cumulative, wanted)]]
    return np.random.default_rng(seed).permutation(np.rint(drawn).astype(np.int32))
