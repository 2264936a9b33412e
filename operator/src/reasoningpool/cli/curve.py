"""Throughput and preemption against `max_num_seqs`, for people (table with bars) and programs (JSON)."""

from __future__ import annotations

from typing import Any

from reasoningpool.sizing import CurvePoint
from reasoningpool.sizing.units import permille

_BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEADS = (
    ("max", "num_seqs"),
    ("run at", "a time"),
    ("requests", "preempted"),
    ("preemptions", "per request"),
    ("ms per", "token"),
    ("output", "tokens/s"),
)


def curve_json(points: tuple[CurvePoint, ...]) -> list[dict[str, Any]]:
    """One object per number of sequences; times and rates are estimates."""
    return [
        {
            "maxNumSeqs": point.sequences,
            "derived": point.derived,
            "running": round(point.running, 2),
            "overflowPermille": round(1000 * point.overflow, 3),
            "preemptedSharePermille": round(1000 * point.preempted_share, 3),
            "preemptionsPerRequest": round(point.preemptions_per_request, 4),
            "timePerOutputTokenMilliseconds": round(point.time_per_output_token_ms, 3),
            "outputTokensPerSecond": round(point.output_tokens_per_second, 1),
        }
        for point in points
    ]


def curve_text(points: tuple[CurvePoint, ...]) -> str:
    """A table; the bar is the throughput, `>` marks the tier's own number."""
    rows = [_cells(point) for point in points]
    widths = [max(len(text) for text in (*_HEADS[i], *(row[i] for row in rows))) for i in range(len(_HEADS))]
    most = max(point.output_tokens_per_second for point in points)
    lines = ["  saturated replica, by max_num_seqs (times and rates are estimates: no GPU was measured)"]
    lines += [
        "    " + "  ".join(head[line].rjust(width) for head, width in zip(_HEADS, widths, strict=True))
        for line in range(2)
    ]
    for point, row in zip(points, rows, strict=True):
        mark = ">" if point.derived else " "
        cells = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {mark} {cells}  {_bar(point.output_tokens_per_second / most)}")
    return "\n".join(lines)


def _cells(point: CurvePoint) -> tuple[str, ...]:
    return (
        f"{point.sequences:,}",
        f"{point.running:,.1f}",
        f"{permille(point.preempted_share) / 10:.1f} %",
        f"{point.preemptions_per_request:.2f}",
        f"{point.time_per_output_token_ms:.1f}",
        f"{point.output_tokens_per_second:,.0f}",
    )


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
