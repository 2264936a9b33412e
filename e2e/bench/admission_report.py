"""The admission benchmark's rows as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.chart import Chart, Series, page

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "admission.svg"
Row = dict[str, Any]
_CHARTED: Final = 10_000  # tokens: the limits of larger pools are too many for an axis


def report(rows: Sequence[Row]) -> None:
    """Print a line per pool, cost and load; write the picture."""
    print(
        "| pool, tokens | recompute | load | best fixed limit | derived limit | no limit | caps committed | forecast |"
    )
    print("|---|---|---|---|---|---|---|---|")
    charts = []
    groups: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["pool"], row["recompute"], row["load"]), []).append(row)
    for (pool, cost, load), group in groups.items():
        by_policy = _by_policy(group)
        if "forecast" not in by_policy:
            continue
        fixed = {int(name): row for name, row in by_policy.items() if name.isdigit()}
        best = max(fixed, key=lambda limit: fixed[limit]["tokens_per_second"])
        number, top = by_policy["forecast"]["derived"], fixed[best]["tokens_per_second"]
        cells = [f"{limit}: {_cell(fixed[limit], top)}" if limit in fixed else "" for limit in (best, number)]
        cells.append(_cell(fixed[max(fixed)], top))
        cells.append(_cell(by_policy["caps committed"], top) if "caps committed" in by_policy else "")
        print(f"| {pool:,} | {cost} | {load} |", " | ".join([*cells, _cell(by_policy["forecast"], top)]), "|")
        if "mean_running" in by_policy["forecast"] and pool < _CHARTED and "open" not in load:
            charts.append(_chart(f"{load}, {cost} recompute", fixed, by_policy["forecast"], number))
    if charts:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(page(charts, columns=2))


def _by_policy(rows: Sequence[Row]) -> dict[str, Row]:
    """One row per policy: rounds that every policy has served, together."""
    policies = {row["policy"] for row in rows}
    served = {seed: {row["policy"] for row in rows if row["seed"] == seed} for seed in {row["seed"] for row in rows}}
    whole = [seed for seed, seen in served.items() if seen == policies]
    merged: dict[str, Row] = {}
    for policy in policies:
        own = [row for row in rows if row["policy"] == policy and row["seed"] in whole]
        if own:
            sums = {key: sum(row[key] for row in own) for key in ("requests", "preempted")}
            merged[policy] = own[0] | sums | {"tokens_per_second": fmean(row["tokens_per_second"] for row in own)}
    return merged


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
