"""Plain charts as SVG: points with error bars and lines, several charts on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import Final

_WIDTH: Final = 420
_HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 30, 40
_COLOURS: Final = ("#1f6feb", "#d1242f")


@dataclass(frozen=True, slots=True)
class Series:
    """Points, joined by a line or with error bars (low and high of each)."""

    label: str
    points: Sequence[tuple[float, float]]
    line: bool = False
    bars: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart; `mark` is a vertical line at that x."""

    title: str
    x_label: str
    x: tuple[float, float]
    y: tuple[float, float]
    y_ticks: Sequence[tuple[float, str]]
    logarithmic: bool
    mark: float
    series: Sequence[Series]

    def at_x(self, value: float) -> float:
        low, high = self.x
        return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def at_y(self, value: float) -> float:
        low, high = self.y
        clipped = min(high, max(low, value))
        if self.logarithmic:
            share = (log10(clipped) - log10(low)) / (log10(high) - log10(low))
        else:
            share = (clipped - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def page(charts: Sequence[Chart], *, columns: int) -> str:
    """All charts in a grid, as one SVG document on a white ground."""
    rows = -(-len(charts) // columns)
    width, height = columns * _WIDTH, rows * _HEIGHT
    body = "\n".join(
        f'<g transform="translate({index % columns * _WIDTH},{index // columns * _HEIGHT})">\n{_chart(chart)}\n</g>'
        for index, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _chart(chart: Chart) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [f'<text x="{_LEFT}" y="18" font-size="12" font-weight="bold">{escape(chart.title)}</text>']
    for value, text in chart.y_ticks:
        y = chart.at_y(value)
        parts.append(_line(_LEFT, y, right, y, "#ddd"))
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    parts += [
        f'<text x="{chart.at_x(value):.1f}" y="{bottom + 15}" text-anchor="middle">{value}</text>'
        for value in range(round(chart.x[0] + 0.5), round(chart.x[1] + 0.5))
    ]
    parts.append(
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    parts.append(_line(_LEFT, bottom, right, bottom, "#333"))
    at = chart.at_x(chart.mark)
    parts.append(_line(at, _TOP, at, bottom, "#888", dash="4 3"))
    parts.append(f'<text x="{at + 4:.1f}" y="{_TOP + 8}" fill="#666">derived</text>')
    for index, series in enumerate(chart.series):
        colour = _COLOURS[0] if series.line else _COLOURS[1]
        parts += _series(chart, series, colour)
        parts.append(
            f'<text x="{right}" y="{_TOP + 8 + 13 * index}" text-anchor="end" fill="{colour}">{series.label}</text>'
        )
    return "\n".join(parts)


def _series(chart: Chart, series: Series, colour: str) -> list[str]:
    at = [(chart.at_x(x), chart.at_y(y)) for x, y in series.points]
    if series.line:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    parts = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
    for (x, _), (low, high) in zip(at, series.bars, strict=True):
        parts.append(_line(x, chart.at_y(low), x, chart.at_y(high), colour))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'
