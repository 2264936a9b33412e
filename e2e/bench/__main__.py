"""`python -m bench [NAME ...]`: run benchmarks; without a name, all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import (
    admission,
    cluster_start,
    concurrency,
    plan_log_speed,
    plan_speed,
    preemption_calibration,
    preemption_link,
    runtime_overhead,
    sizing_accuracy,
    startup,
    thousand_pools,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_OBSERVATIONS: Final = Path(__file__).parents[2] / "tests" / "data" / "kv_observations.json"


def _accuracy() -> None:
    sizing_accuracy.main([str(_OBSERVATIONS)])


BENCHMARKS: Final[dict[str, Callable[[], None]]] = {
    "admission": admission.main,
    "cluster-start": cluster_start.main,
    "concurrency": concurrency.main,
    "plan-log-speed": plan_log_speed.main,
    "plan-speed": plan_speed.main,
    "preemption-calibration": preemption_calibration.main,
    "preemption-link": preemption_link.main,
    "runtime-overhead": runtime_overhead.main,
    "sizing-accuracy": _accuracy,
    "startup": startup.main,
    "thousand-pools": thousand_pools.main,
}


def main() -> int:
    """The command."""
    chosen = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in chosen:
        print(f"## {name}\n", flush=True)
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
