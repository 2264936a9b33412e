"""Lengths against budgets as a plain SVG: for each effort a histogram of thinking and of answers with the budget in it.

Written by hand: a handful of rectangles needs no plotting library in the operator's image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

import numpy as np

from reasoningpool.capacity.advice import MOST_CUT, Budget, Reach, reaches
from reasoningpool.requests.tier_requests import TierRequests

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDTH: Final = 300  # of a plot's area
_HEIGHT: Final = 110
_GAP_X: Final = 44
_LEFT: Final = 24
_TOP: Final = 84
_ROW: Final = _HEIGHT + 74
_BARS: Final = 60
_LONGEST_SOURCE: Final = 60  # characters
_WITHIN: Final = "#6b9bd1"
_CUT: Final = "#e08a3c"
_GAP: Final = 0.6  # between bars
_LINE: Final = "#b3261e"
_INK: Final = "#222222"
_FAINT: Final = "#8a8a8a"
_STYLE: Final = (
    "text{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;font-size:11px;fill:" + _INK + "}"
    ".t{font-size:15px;font-weight:bold}.f{fill:" + _FAINT + "}.b{fill:" + _LINE + "}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A tier to draw."""

    title: str
    source: str
    requests: TierRequests


def draw(panels: Sequence[Panel]) -> str:
    """One SVG document with all panels below each other."""
    parts: list[str] = []
    top, columns = 0, 2
    for panel in panels:
        rows = _rows(panel.requests)
        columns = max([columns, *(len(row) for row in rows)])
        parts.extend(_head(panel, top, observed=bool(rows)))
        for number, row in enumerate(rows):
            for column, reach in enumerate(row):
                x, y = _LEFT + column * (_WIDTH + _GAP_X), top + _TOP + number * _ROW
                parts.extend(_plot(reach, x, y))
        top += _TOP + len(rows) * _ROW
    width, height = 2 * _LEFT + columns * (_WIDTH + _GAP_X) - _GAP_X, top + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img"><title>Lengths against budgets</title><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _rows(requests: TierRequests) -> list[list[Reach]]:
    """Prompts in a row of their own, then a row for each effort."""
    found = reaches(requests)
    rows = [[reach] for reach in found if reach.budget is Budget.PROMPT]
    names = dict.fromkeys(reach.effort for reach in found if reach.effort is not None)
    return [*rows, *([reach for reach in found if reach.effort == name] for name in names)]


def _head(panel: Panel, top: int, *, observed: bool) -> Iterator[str]:
    yield _text(_LEFT, top + 26, panel.title, css="t")
    runs = "" if panel.requests.runs is None else f", {panel.requests.runs:,} requests"
    yield _text(
        _LEFT,
        top + 44,
        "tokens per request (logarithmic) against the budgets in red; what a budget cuts is orange"
        if observed
        else "no lengths were observed: every run is taken at its whole budget",
        css="f",
    )
    yield _text(_LEFT, top + 60, f"lengths from {panel.source[-_LONGEST_SOURCE:]}{runs}", css="f")


def _plot(reach: Reach, x: int, y: int) -> Iterator[str]:
    """One histogram on a logarithmic axis from 1 token (0 counts as 1)."""
    longest = max(reach.longest, reach.tokens, 10)
    end = np.log10(longest) * 1.03
    cut_from = float(np.log10(reach.tokens + 0.5))
    edges = _edges(end, at=cut_from)
    counts, _ = np.histogram(np.log10(np.maximum(reach.lengths, 1)), bins=edges, weights=reach.weights)
    highest = float(counts.max()) or 1.0
    budget = x + np.log10(max(reach.tokens, 1)) / end * _WIDTH
    name = f"{reach.effort}: {reach.budget.value}" if reach.effort else reach.budget.value
    yield _text(x, y - 6, name)
    cut = f"{100 * reach.cut_share:.1f} % {'longer' if reach.budget is Budget.PROMPT else 'cut'}"
    yield _text(x + _WIDTH, y - 6, cut, anchor="end", css="b" if reach.cut_share > MOST_CUT else "f")
    yield from _bars(counts / highest, x + np.clip(edges / end, 0, 1) * _WIDTH, x + cut_from / end * _WIDTH, y)
    yield f'<line x1="{x}" y1="{y + _HEIGHT}" x2="{x + _WIDTH}" y2="{y + _HEIGHT}" stroke="{_INK}"/>'
    yield from _ticks(end, x, y)
    yield (
        f'<line x1="{budget:.1f}" y1="{y}" x2="{budget:.1f}" y2="{y + _HEIGHT + 4}" stroke="{_LINE}"'
        ' stroke-width="1.5"/>'
    )
    anchor = "end" if budget > x + _WIDTH / 2 else "start"
    yield _text(budget, y + _HEIGHT + 30, f"budget {reach.tokens:,}", anchor=anchor, css="b")


def _edges(end: float, at: float) -> NDArray[np.float64]:
    """Edges of equal bins over [0, end], one of which is `at`: no bar stands on both sides of the budget."""
    step = end / _BARS
    return at + step * np.arange(-np.ceil(at / step), np.ceil((end - at) / step) + 1)


def _bars(heights: NDArray[np.float64], edges: NDArray[np.float64], cut_from: float, y: int) -> Iterator[str]:
    for height, left, right in zip(heights, edges, edges[1:], strict=False):
        if height <= 0 or right - left <= _GAP:
            continue
        tall, colour = max(1.0, height * _HEIGHT), _WITHIN if (left + right) / 2 < cut_from else _CUT
        yield (
            f'<rect x="{left:.1f}" y="{y + _HEIGHT - tall:.1f}" width="{right - left - _GAP:.1f}" height="{tall:.1f}"'
            f' fill="{colour}"/>'
        )


def _ticks(end: float, x: int, y: int) -> Iterator[str]:
    for power in range(int(end) + 1):
        place = x + power / end * _WIDTH
        yield f'<line x1="{place:.1f}" y1="{y + _HEIGHT}" x2="{place:.1f}" y2="{y + _HEIGHT + 4}" stroke="{_INK}"/>'
        anchor = "start" if power == 0 else "middle"
        yield _text(place, y + _HEIGHT + 16, f"{10**power:,}", anchor=anchor, css="f")


def _text(x: float, y: float, text: str, *, anchor: str = "start", css: str = "") -> str:
    style = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'
