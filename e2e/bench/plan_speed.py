"""How long one pool's plan takes: resolving, sizing, rendering and status, in this process."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import yaml

from reasoningpool.planning import PlanningSettings, correction, plan
from reasoningpool.planning.types import Snapshot

ROUNDS = 200
EXAMPLES = Path(__file__).parents[2] / "examples"


def main() -> None:
    """Median and 95th percentile of `plan` for every example, nothing live."""
    now, settings = datetime(2026, 1, 1, tzinfo=UTC), PlanningSettings()
    print("| example | tiers | median ms | p95 ms |\n|---|---|---|---|")
    for path in sorted(EXAMPLES.glob("*.yaml")):
        pool = yaml.safe_load(path.read_text())
        times = []
        for _ in range(ROUNDS):
            correction.cached_size.cache_clear()  # the first plan of a spec; later ones find the sizing ready
            started = time.perf_counter()
            plan(Snapshot(pool=pool), now=now, settings=settings)
            times.append((time.perf_counter() - started) * 1000)
        times.sort()
        p95 = times[int(0.95 * ROUNDS)]
        print(f"| {path.stem} | {len(pool['spec']['tiers'])} | {statistics.median(times):.2f} | {p95:.2f} |")
    print()
