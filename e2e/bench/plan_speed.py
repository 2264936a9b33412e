"""How long one pool takes: its sizing, and the whole plan with resolving, rendering and status, in this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import yaml

from reasoningpool import sizing
from reasoningpool.api.resource import parse_pool
from reasoningpool.objects import Manifest
from reasoningpool.planning.plan import PlanningSettings, plan
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.planning.verification import correction
from reasoningpool.resolution.resolve import resolve

ROUNDS = 200
EXAMPLES = Path(__file__).parents[2] / "examples"


def main() -> None:
    """Median and 95th percentile for every example, nothing live."""
    now, settings = datetime(2026, 1, 1, tzinfo=UTC), PlanningSettings()
    print("Milliseconds: median, 95th percentile.\n")
    print("| example | tiers | sizing of all tiers | whole plan |\n|---|---|---|---|")
    for path in sorted(EXAMPLES.glob("*.yaml")):
        pool = yaml.safe_load(path.read_text())
        inputs = [tier.sizing_input for tier in resolve(parse_pool(pool), settings.resolution).tiers]
        sized = _milliseconds(partial(_size, inputs))
        print(f"| {path.stem} | {len(inputs)} | {sized} | {_milliseconds(partial(_plan, pool, now, settings))} |")
    print()


def _size(inputs: Sequence[sizing.SizingInput]) -> None:
    for each in inputs:
        sizing.plan(each)


def _plan(pool: Manifest, now: datetime, settings: PlanningSettings) -> None:
    correction.cached_size.cache_clear()  # the first plan of a spec; later ones find the sizing ready
    plan(Snapshot(pool=pool), now=now, settings=settings)


def _milliseconds(work: Callable[[], None]) -> str:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    times.sort()
    return f"{statistics.median(times):.1f}, {times[int(0.95 * ROUNDS)]:.1f}"
