"""A request log in memory: lengths in tokens, arrival times, efforts and tiers, one array each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.integer]
    Floats = NDArray[np.float64]

# More tokens than any context of today's models; a larger figure is a mistake of the log.
MOST_TOKENS: Final = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """A column of few different texts: `values[codes[row]]`."""

    values: tuple[str, ...]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """Requests as they were served, in order of arrival where times are known.

    `output` is thinking and answer together; `thinking` is None where the log does not tell them apart, `prompt`
    where it has no prompts. `seconds` count from the first arrival. `weights` are relative numbers of requests
    per row, None: one each. `runs` is how many requests were seen, None where only percentiles are known. `assumed`
    are the efforts of which nothing is known: their runs are taken at the whole output budget.
    """

    output: Ints
    prompt: Ints | None = None
    thinking: Ints | None = None
    seconds: Floats | None = None
    effort: Names | None = None
    tier: Names | None = None
    weights: Floats | None = None
    runs: int | None = None
    assumed: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()  # what was assumed while reading

    def __len__(self) -> int:
        return len(self.output)

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> RequestLog:
        """Some of the rows."""

        def names(column: Names | None) -> Names | None:
            return None if column is None else Names(values=column.values, codes=column.codes[chosen])

        output = self.output[chosen]
        return RequestLog(
            output=output,
            prompt=None if self.prompt is None else self.prompt[chosen],
            thinking=None if self.thinking is None else self.thinking[chosen],
            seconds=None if self.seconds is None else self.seconds[chosen],
            effort=names(self.effort),
            tier=names(self.tier),
            weights=None if self.weights is None else self.weights[chosen],
            runs=self.runs if self.weights is not None else len(output),
            assumed=self.assumed,
            notes=self.notes,
        )
