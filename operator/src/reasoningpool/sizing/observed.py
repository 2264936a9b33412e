"""Observed requests: the joint lengths of prompts and outputs in a few hundred classes, from a log of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.model.errors import SizingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

# Shares of the requests in each class of outputs: long runs are few and hold most, so the tail has classes of its own.
_OUTPUT_CLASSES: Final = (*(0.05,) * 18, *(0.01,) * 8, *(0.0025,) * 7, 0.0025)
_MOST_TOKENS: Final = 1_000_000_000
_PROMPT_CLASSES: Final = (*(0.08,) * 11, *(0.02,) * 5, 0.02)


@dataclass(frozen=True, slots=True)
class ObservedTokens:
    """Classes of requests: how many, their prompt and their output tokens.

    Within a class `output` is the length-biased mean (`E[o^2] / E[o]`) and `prompt` the mean weighted by output, so
    that what requests in flight hold on average is kept exactly.
    """

    requests: tuple[float, ...]
    prompts: tuple[float, ...]
    outputs: tuple[float, ...]


def observe(prompts: ArrayLike, outputs: ArrayLike) -> ObservedTokens:
    """Classes of a log, one entry a request. Requests without output hold nothing for long and are left out.

    Raises `SizingError` for lengths that differ, are no token counts, or when nothing is left.
    """
    prompt, output = (np.asarray(values, dtype=np.float64).ravel() for values in (prompts, outputs))
    if len(prompt) != len(output):
        raise SizingError(f"{len(prompt):,} prompts but {len(output):,} outputs; there must be one of each per request")
    if not all(((values >= 0) & (values <= _MOST_TOKENS)).all() for values in (prompt, output)):
        raise SizingError(f"token counts must be numbers from 0 to {_MOST_TOKENS:,}")
    kept = output >= 1
    prompt, output = prompt[kept], output[kept]
    if not len(output):
        raise SizingError("no request generated a token")
    row = _classes(prompt, np.zeros(len(prompt), dtype=np.int64), 1, _PROMPT_CLASSES)
    cell = row * len(_OUTPUT_CLASSES) + _classes(output, row, len(_PROMPT_CLASSES), _OUTPUT_CLASSES)
    size = len(_PROMPT_CLASSES) * len(_OUTPUT_CLASSES)
    first, second, both = (np.bincount(cell, weights, size) for weights in (output, output * output, prompt * output))
    filled = first > 0
    first, second, both = first[filled], second[filled], both[filled]
    representative = second / first
    # As many requests as generate the class's tokens at that length: the length-biased weight is kept.
    return ObservedTokens(
        tuple((first / representative).tolist()), tuple((both / first).tolist()), tuple(representative.tolist())
    )


def _classes(values: Floats, group: Integers, groups: int, shares: tuple[float, ...]) -> Integers:
    """The class of each value by its rank within its group."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=groups)
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(values))
    rank[order] = np.arange(len(values)) - starts[group[order]]
    edges = np.cumsum(shares)[:-1]
    found: Integers = np.searchsorted(edges, (rank + 0.5) / counts[group], side="right").astype(np.int64)
    return found
