"""The derived `max_num_seqs` against a sweep of fixed ones on the real vLLM server, with tiny KV pools.

Each pool has its own mix of efforts. A closed loop of clients keeps every server full; the servers of a group take
turns within a round, so that all of them see the same noise of a shared machine, and throughput is compared within
rounds.

`BENCH_CONCURRENCY` picks what to run: a pool, `pool:group`, `pool:28+29` (these numbers), `pool:best` (the derived
number against its neighbours, all servers loaded at once) or `report`; the default is all of it, then the report.
Windows are added to `e2e/bench/results/concurrency.json`; remove the file to start anew. `BENCH_SEED` gives other
requests; round n of a sweep takes those of seed + n.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.closed_loop import Job, Load, Window, measure
from bench.concurrency_report import Prediction, report
from bench.concurrency_simulated import simulated_shares
from engine import models, server
from reasoningpool.model import Geometry
from reasoningpool.sizing import (
    AcceleratorFacts,
    ConcurrencyPolicy,
    Effort,
    KVCacheDType,
    SizingInput,
    SizingPlan,
    plan,
    throughput_curve,
)

RESULTS: Final = Path(__file__).parent / "results" / "concurrency.json"
RISKS_PERMILLE: Final = (10, 50, 200)
CLIENTS: Final = 64
BLOCK: Final = 32
GROUP: Final = 7  # servers beside the one with the derived number; each takes 1.3 GB
WARM_REQUESTS: Final = 400  # sixteen times the sequences: nothing is left of all having started together
STARTS: Final = 2  # servers that start at a time
ENGINE_DEFAULT: Final = 128  # vLLM's own max_num_seqs on a CPU
TINY: Final = AcceleratorFacts(
    product="CPU", memory_bytes=None, compute_capability=None, memory_bandwidth_bytes_per_s=None
)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often the servers of a group are measured, and for how long."""

    number: int
    window_s: float


SWEEP_ROUNDS: Final = 3
DUELS: Final = Rounds(24, 12.0)  # the derived number against the others within the risk, side by side


@dataclass(frozen=True, slots=True)
class Pool:
    """A KV pool and the requests that fill it: prompt and output tokens, and the effort's share of the requests."""

    mib: int
    efforts: tuple[tuple[int, int, int], ...]
    words: str
    window_s: float = 10.0  # of a sweep: long compared with the longest run


POOLS: Final = {
    "thinking": Pool(3, ((32, 16, 1), (32, 64, 1), (32, 192, 1)), "short prompts, outputs of 16, 64 and 192 tokens"),
    "prompts": Pool(7, ((256, 16, 1), (256, 64, 1), (256, 192, 1)), "long prompts, outputs of 16, 64 and 192 tokens"),
    "skewed": Pool(6, ((64, 24, 6), (64, 96, 3), (64, 384, 1)), "one run in ten sixteen times as long as most", 40.0),
    "mixed": Pool(4, ((64, 32, 2), (96, 96, 2), (32, 256, 1)), "prompts and outputs that differ by effort"),
}


def sizing_input(pool: Pool, risk_permille: int = 10) -> SizingInput:
    """The pool as the calculation sees it."""
    config = json.loads((models.ensure_tiny("tiny-random") / "config.json").read_text())
    return SizingInput(
        accelerator=TINY,
        tensor_parallel_size=1,
        geometry=Geometry.from_config(config),
        weight_bytes=None,
        kv_cache_dtype=KVCacheDType.AUTO,
        memory_utilization_permille=900,
        kv_cache_memory_bytes=pool.mib << 20,
        efforts=tuple(
            Effort(name=f"e{i}", prompt_tokens=prompt, thinking_tokens=0, answer_tokens=output, share=share)
            for i, (prompt, output, share) in enumerate(pool.efforts)
        ),
        policy=ConcurrencyPolicy.STATISTICAL,
        preemption_risk_permille=risk_permille,
        block_size=BLOCK,
    )


def planned(pool: Pool, risk_permille: int = 10) -> SizingPlan:
    """The plan at a risk."""
    answer = plan(sizing_input(pool, risk_permille))
    assert isinstance(answer, SizingPlan), answer
    return answer


def groups(pool: Pool) -> list[list[int]]:
    """The swept numbers, from below the derived one to beyond the 20 % one, and vLLM's default, in groups."""
    numbers = [planned(pool, risk).max_num_seqs for risk in RISKS_PERMILLE]
    derived = numbers[0]
    others = [n for n in range(derived - 1, numbers[-1] + 3) if n != derived] + [ENGINE_DEFAULT]
    return [[derived, *others[at : at + GROUP]] for at in range(0, len(others), GROUP)]


def jobs(pool: Pool, seed: int) -> Iterator[Job]:
    """Requests without end, the same for the same seed. Random prompts: nothing is found in the prefix cache."""
    chance = random.Random(seed)
    weights = [share for _, _, share in pool.efforts]
    while True:
        ((prompt, output, _),) = chance.choices(pool.efforts, weights)
        yield Job(tuple(chance.randrange(300, 1900) for _ in range(prompt)), output)


def contenders(name: str) -> list[int]:
    """The derived number, the one below, and the larger ones whose measured share is within the risk, after a sweep."""
    derived = planned(POOLS[name]).max_num_seqs
    windows = [row for row in _rows() if row["pool"] == name]
    numbers = sorted({row["sequences"] for row in windows if row["sequences"] > derived})
    within = [number for number in numbers if _share(windows, number) <= RISKS_PERMILLE[0] / 1000]
    return [derived, derived - 1, *within]


def _share(windows: list[dict[str, Any]], number: int) -> float:
    own = [row for row in windows if row["sequences"] == number]
    return sum(row["preempted"] for row in own) / sum(row["requests"] for row in own)


def run_group(name: str, group: str, seed: int) -> None:
    """All rounds of one group; each window is written as soon as it is there."""
    pool, model = POOLS[name], models.ensure_tiny("tiny-random")
    if "+" in group:
        numbers = [int(number) for number in group.split("+")]
    else:
        numbers = contenders(name) if group == "best" else groups(pool)[int(group)]
    sizing = planned(pool)
    arguments = (
        *("--enforce-eager", "--block-size", str(BLOCK), "--kv-cache-memory-bytes", f"{pool.mib}M"),
        *("--max-model-len", str(sizing.max_model_len)),
    )
    with ExitStack() as stack:

        def start(number: int) -> server.Server:
            limit = () if number == ENGINE_DEFAULT else ("--max-num-seqs", str(number))
            context = server.serve(model, (*arguments, *limit))
            found = context.__enter__()
            stack.push(context)
            return found

        with ThreadPoolExecutor(STARTS) as starters:
            running = dict(zip(numbers, starters.map(start, numbers), strict=True))
        found = _side_by_side if group == "best" else _in_turns
        for turn, windows in enumerate(found(running, pool, seed)):
            for number, window in windows.items():
                _keep(name, f"{seed}.{group}.{turn}", number, window)


def _in_turns(servers: dict[int, server.Server], pool: Pool, seed: int) -> Iterator[dict[int, Window]]:
    """Round after round, each server alone; every round begins with another one."""
    numbers = list(servers)
    for turn in range(SWEEP_ROUNDS):
        order = numbers[turn % len(numbers) :] + numbers[: turn % len(numbers)]
        windows: dict[int, Window] = {}
        for number in order:
            one = servers[number]
            loads = {one.base_url: Load(jobs(pool, seed + turn), one.process.pid)}
            (measured,) = asyncio.run(
                measure(loads, clients=CLIENTS, warm_requests=WARM_REQUESTS, window_s=pool.window_s)
            )
            windows[number] = measured[one.base_url]
        yield windows


def _side_by_side(servers: dict[int, server.Server], pool: Pool, seed: int) -> Iterator[dict[int, Window]]:
    """All servers at once: each gets the same share of the two cores, whatever else runs there."""
    loads = {
        each.base_url: Load(jobs(pool, seed + index), each.process.pid) for index, each in enumerate(servers.values())
    }
    found = asyncio.run(
        measure(loads, clients=CLIENTS, warm_requests=WARM_REQUESTS, window_s=DUELS.window_s, windows=DUELS.number)
    )
    for measured in found:
        yield {number: measured[each.base_url] for number, each in servers.items()}


def _keep(name: str, turn: str, number: int, window: Window) -> None:
    rows = _rows()
    ordered = sorted(window.latencies)
    facts = asdict(window) | {"latencies": len(ordered), "p99_s": round(ordered[int(0.99 * (len(ordered) - 1))], 3)}
    facts |= {"seconds": round(window.seconds, 3), "cpu_s": round(window.cpu_s, 2), "warm_requests": WARM_REQUESTS}
    rows.append({"pool": name, "round": turn, "sequences": number} | facts)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(
        f"{name} {turn} N={number}: {window.tokens_per_second:,.0f} tokens/s, {window.requests} requests, "
        f"{100 * window.preempted / max(1, window.requests):.2f} % preempted",
        flush=True,
    )


def _rows() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def main() -> None:
    """Run what `BENCH_CONCURRENCY` says, then print the tables and write the plot."""
    chosen = os.environ.get("BENCH_CONCURRENCY", ",".join(POOLS))
    seed = int(os.environ.get("BENCH_SEED", "1"))
    for item in chosen.split(","):
        if item == "report":
            continue
        name, _, group = item.partition(":")
        for each in [group] if group else [*map(str, range(len(groups(POOLS[name])))), "best"]:
            run_group(name, each, seed)
    rows = _rows()
    predictions = {
        name: Prediction(
            words=pool.words,
            usable_blocks=planned(pool).num_blocks - 1,
            numbers={risk: planned(pool, risk).max_num_seqs for risk in RISKS_PERMILLE},
            curve={
                point.sequences: point.preempted_share
                for point in throughput_curve(sizing_input(pool), range(1, ENGINE_DEFAULT + 1))
            },
            simulated=simulated_shares(
                [row for row in rows if row["pool"] == name],
                partial(jobs, pool),
                blocks=planned(pool).num_blocks - 1,
                block=BLOCK,
            ),
        )
        for name, pool in POOLS.items()
    }
    report(rows, predictions)
