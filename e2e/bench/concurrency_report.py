"""The concurrency benchmark's windows as tables and as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from bench.chart import Chart, Series, page

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "concurrency.svg"
# 97.5 % quantile of Student's t by degrees of freedom.
_T: Final = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 11: 2.20}
_T_MANY: Final = 2.1
_Z: Final = 1.96


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the calculation says of a pool."""

    words: str
    usable_blocks: int
    numbers: Mapping[int, int]  # by risk in permille
    curve: Mapping[int, float]  # preempted share by number of sequences
    simulated: Mapping[int, float]  # the same of windows served again by the simulated scheduler

    @property
    def derived(self) -> int:
        return self.numbers[min(self.numbers)]


@dataclass(frozen=True, slots=True)
class Swept:
    """All windows of one number of sequences."""

    sequences: int
    requests: int
    preempted: int
    preemptions: int
    tokens_per_second: float
    p99_s: float
    ratio: tuple[float, float, float] | None  # throughput over that of the derived number: low, mean, high (95 %)

    @property
    def share(self) -> float:
        return self.preempted / self.requests

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share."""
        n, p, z = self.requests, self.share, _Z
        middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), (middle + half) / (1 + z * z / n)


def report(rows: Sequence[Row], predictions: Mapping[str, Prediction]) -> None:
    """Print a table per pool and the summary; write the picture."""
    charts: list[Chart] = []
    summary: list[str] = []
    for name, prediction in predictions.items():
        found = _swept([row for row in rows if row["pool"] == name], prediction.derived)
        if not found:
            continue
        _print_pool(name, prediction, found)
        summary += _summary(name, prediction, found)
        charts += _charts(name, prediction, found)
    head = "| pool | risk | predicted N | measured N | best other N within the risk | derived over it, 95 % interval |"
    print(head, "|---|---|---|---|---|---|", *summary, sep="\n")
    print()
    if charts:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(page(charts, columns=2))


def _swept(rows: Sequence[Row], derived: int) -> list[Swept]:
    by_number: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_number[row["sequences"]].append(row)
    base = {row["round"]: row for row in by_number[derived]}
    return [
        Swept(
            sequences=number,
            requests=sum(row["requests"] for row in windows),
            preempted=sum(row["preempted"] for row in windows),
            preemptions=sum(row["preemptions"] for row in windows),
            tokens_per_second=fmean(_rate(row) for row in _alone(windows)),
            p99_s=fmean(row["p99_s"] for row in _alone(windows)),
            ratio=_interval([_log_ratio(row, base[row["round"]]) for row in _paired(windows, base)]),
        )
        for number, windows in sorted(by_number.items())
        if windows
    ]


def _alone(windows: Sequence[Row]) -> Sequence[Row]:
    """The windows in which a server had the machine to itself."""
    return [row for row in windows if ".best." not in row["round"]]


def _paired(windows: Sequence[Row], base: Mapping[str, Row]) -> Sequence[Row]:
    """The windows to compare, of the least noisy kind: side by side with processor time, side by side, in turns."""
    paired = [row for row in windows if row["round"] in base]
    together = [row for row in paired if ".best." in row["round"]]
    return [row for row in together if "cpu_s" in row] or together or paired


def _log_ratio(row: Row, other: Row) -> float:
    """Logarithm of the ratio of tokens per second; per second of the servers' own processor time where it is known."""
    clock = "cpu_s" if "cpu_s" in row and "cpu_s" in other else "seconds"
    return log(row["output_tokens"] / row[clock] / (other["output_tokens"] / other[clock]))


def _rate(row: Row) -> float:
    return row["output_tokens"] / row["seconds"]


def _interval(logs: Sequence[float]) -> tuple[float, float, float] | None:
    """Geometric mean with its 95 % interval, by Student's t over the rounds."""
    if len(logs) < 2:
        return None
    middle, half = fmean(logs), _T.get(len(logs) - 1, _T_MANY) * stdev(logs) / sqrt(len(logs))
    return exp(middle - half), exp(middle), exp(middle + half)


def _print_pool(name: str, prediction: Prediction, found: Sequence[Swept]) -> None:
    print(f"### {name}: {prediction.words}; {prediction.usable_blocks} blocks of 32 tokens\n")
    print(
        "| max_num_seqs | predicted share | measured share (95 %) | simulated with the same requests "
        "| preemptions per request | requests | tokens/s | over derived (95 %) | p99 s |"
    )
    print("|---" * 9 + "|")
    for each in found:
        low, high = each.interval
        again = prediction.simulated.get(each.sequences)
        simulated = "" if again is None else f"{100 * again:.1f} %"
        mark = " (derived)" if each.sequences == prediction.derived else ""
        ratio = "{1:.3f} ({0:.3f} to {2:.3f})".format(*each.ratio) if each.ratio and not mark else ""
        print(
            f"| {each.sequences}{mark} | {100 * prediction.curve[each.sequences]:.1f} % "
            f"| {100 * each.share:.1f} % ({100 * low:.1f} to {100 * high:.1f}) | {simulated} "
            f"| {each.preemptions / each.requests:.3f} | {each.requests:,} | {each.tokens_per_second:,.0f} "
            f"| {ratio} | {each.p99_s:.2f} |"
        )
    print()


def _summary(name: str, prediction: Prediction, found: Sequence[Swept]) -> list[str]:
    lines = []
    for risk, predicted in prediction.numbers.items():
        within = [each for each in found if each.share <= risk / 1000]
        beyond = [each.sequences for each in found if each.share > risk / 1000]
        measured = max((each.sequences for each in within if each.sequences < min(beyond, default=1 << 30)), default=0)
        best, ratio = "", ""
        # Compared with itself the derived number would always hold.
        compared = [each for each in within if each.ratio and each.sequences != prediction.derived]
        if risk == min(prediction.numbers) and compared:
            top = max(compared, key=lambda each: each.ratio[1] if each.ratio else 0.0)
            best = str(top.sequences)
            if top.ratio:
                ratio = f"{1 / top.ratio[1]:.3f} ({1 / top.ratio[2]:.3f} to {1 / top.ratio[0]:.3f})"
        lines.append(f"| {name} | {risk / 10:g} % | {predicted} | {measured} | {best} | {ratio} |")
    return lines


def _charts(name: str, prediction: Prediction, found: Sequence[Swept]) -> list[Chart]:
    swept = [each for each in found if each.sequences < 100]  # the engine's default is far to the right
    numbers = [each.sequences for each in swept]
    low, high = min(numbers) - 0.5, max(numbers) + 0.5
    measured = [(each.sequences, each.share) for each in swept]
    inside = [n for n in prediction.curve if low <= n <= high]
    shares = Chart(
        title=f"{name}: share of requests preempted",
        x_label="max_num_seqs",
        x=(low, high),
        y=(0.0005, 1.0),
        y_ticks=((0.001, "0.1 %"), (0.01, "1 %"), (0.05, "5 %"), (0.2, "20 %"), (1.0, "100 %")),
        logarithmic=True,
        mark=prediction.derived,
        series=(
            Series("predicted", [(n, prediction.curve[n]) for n in inside], line=True),
            Series("measured", measured, bars=[each.interval for each in swept]),
        ),
    )
    ratios = [(each.sequences, each.ratio) for each in swept if each.ratio]
    throughput = Chart(
        title=f"{name}: tokens/s over those of the derived number",
        x_label="max_num_seqs",
        x=(low, high),
        y=(0.7, 1.3),
        y_ticks=((0.8, "0.8"), (0.9, "0.9"), (1.0, "1.0"), (1.1, "1.1"), (1.2, "1.2")),
        logarithmic=False,
        mark=prediction.derived,
        series=(
            Series("measured", [(n, ratio[1]) for n, ratio in ratios], bars=[(r[0], r[2]) for _, r in ratios]),
        ),
    )  # fmt: skip
    return [shares, throughput]
