"""The admission benchmark's rows as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from bench.chart import Chart, Series, page

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "admission.svg"
Row = Mapping[str, Any]


def report(rows: Sequence[Row]) -> None:
    """Print a line per pool, cost and load; write the picture."""
    print(
        "| pool, tokens | recompute | load | best fixed limit | derived limit | no limit | caps committed | forecast |"
    )
    print("|---|---|---|---|---|---|---|---|")
    charts = []
    for (pool, cost, load), group in groupby(rows, key=lambda row: (row["pool"], row["recompute"], row["load"])):
        by_policy = {row["policy"]: row for row in group}
        fixed = {int(name): row for name, row in by_policy.items() if name.isdigit()}
        best = max(fixed, key=lambda limit: fixed[limit]["tokens_per_second"])
        top = fixed[best]["tokens_per_second"]
        number = by_policy["forecast"]["derived"]
        cells = [f"{best}: {_cell(fixed[best], top)}", f"{number}: {_cell(fixed[number], top)}"]
        cells += [_cell(fixed[max(fixed)], top), _cell(by_policy["caps committed"], top)]
        cells.append(f"**{_cell(by_policy['forecast'], top)}**")
        print(f"| {pool:,} | {cost} | {load} |", " | ".join(cells), "|")
        if pool == min(row["pool"] for row in rows) and "open" not in load:
            charts.append(_chart(f"{load}, {cost} recompute", fixed, by_policy["forecast"], number))
    if charts:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(page(charts, columns=2))


def _cell(row: Row, top: float) -> str:
    """Throughput over the best fixed limit's, and the share of requests preempted."""
    share = row["preempted"] / row["requests"]
    return f"{row['tokens_per_second'] / top:.3f}, {100 * share:.2f} %"


def _chart(title: str, fixed: Mapping[int, Row], forecast: Row, number: int) -> Chart:
    limits = sorted(fixed)[:-1]
    points = [(float(limit), fixed[limit]["tokens_per_second"]) for limit in limits]
    found = (forecast["mean_running"], forecast["tokens_per_second"])
    top = 1.1 * max(value for _, value in [*points, found])
    step = 10 ** (len(str(int(top))) - 1)
    return Chart(
        title=title,
        x_label="sequences: fixed limit, or mean of the forecast; tokens per second",
        x=(limits[0] - 0.5, limits[-1] + 0.5),
        y=(0.0, top),
        y_ticks=[(float(value), f"{value:,}") for value in range(0, int(top) + 1, step)],
        logarithmic=False,
        mark=number,
        series=[Series("fixed limit", points, line=True), Series("forecast", [found], bars=[(found[1], found[1])])],
    )
