"""Admission by forecast against a sweep of fixed limits, the derived one, and committing caps.

`BENCH_ADMISSION` picks what to run: `simulated`, `simulated:4096` (one pool), `engine`, `report`; the default is all.
Rows are added to `e2e/bench/results/admission.json`; remove the file to start anew. `BENCH_SEED` gives other requests.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from math import exp
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

from bench.admission_engine import CHEAP, DEAR, MOST_SEQUENCES, Engine, StepTime
from bench.admission_loads import Load, loads
from bench.admission_report import report
from bench.admission_simulated import ForecastGate, Gate, NoGate, Seen, WorstCaseGate, simulate
from reasoningpool.sizing import (
    AcceleratorFacts,
    ConcurrencyPolicy,
    Effort,
    Geometry,
    KVCacheDType,
    SizingInput,
    SizingPlan,
    TokenQuantiles,
    plan,
)
from reasoningpool_runtime.admission.types import Capacity

RESULTS: Final = Path(__file__).parent / "results" / "admission.json"
SEED: Final = 201
REQUESTS: Final = 1500
WARM_UP: Final = 250
BLOCK: Final = 32
POOLS: Final = {4096: (64, (8, 9, 10, 11, 12, 13, 14, 16)), 32768: (256, (20, 22, 24, 26, 28, 30, 32, 36))}
STEP_TIMES: Final[dict[str, StepTime]] = {"dear": DEAR, "cheap": CHEAP}
# With cheap recomputation, where hardly anything depends on preemption, only the loads that differ most.
CHEAP_LOADS: Final = ("steady", "longer from the middle on")
_KV_BYTES_PER_TOKEN: Final = 1024
TINY: Final = Geometry.from_config(
    {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256,
        "vocab_size": 2048, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    }
)  # fmt: skip


def derived(load: Load, pool_tokens: int) -> int:
    """`max_num_seqs` as the sizing derives it from what is stated, at a risk of 1 %."""
    total = sum(load.shares.values())
    efforts = []
    for name, effort in load.efforts.items():
        stated = load.expected(name, points=100)
        efforts.append(
            Effort(
                name=name,
                prompt_tokens=4 * effort.prompt,
                thinking_tokens=0,
                answer_tokens=effort.cap,
                share=load.shares[name] / total,
                prompt_distribution=_lognormal(effort.prompt, effort.prompt_sigma),
                output_distribution=TokenQuantiles(p50=stated[50], p90=stated[90], p99=stated[99]),
            )
        )
    found = plan(
        SizingInput(
            accelerator=AcceleratorFacts(
                product="CPU", memory_bytes=None, compute_capability=None, memory_bandwidth_bytes_per_s=None
            ),
            tensor_parallel_size=1,
            geometry=TINY,
            weight_bytes=None,
            kv_cache_dtype=KVCacheDType.AUTO,
            memory_utilization_permille=900,
            kv_cache_memory_bytes=pool_tokens * _KV_BYTES_PER_TOKEN,
            efforts=tuple(efforts),
            policy=ConcurrencyPolicy.STATISTICAL,
            preemption_risk_permille=10,
            block_size=BLOCK,
            template_overhead_tokens=0,
        )
    )
    assert isinstance(found, SizingPlan), found
    return found.max_num_seqs


def _lognormal(median: int, sigma: float) -> TokenQuantiles:
    p90, p99 = (round(median * exp(sigma * NormalDist().inv_cdf(share))) for share in (0.9, 0.99))
    return TokenQuantiles(p50=median, p90=p90, p99=p99)


def run_simulated(pool_tokens: int, seed: int) -> None:
    """All loads of one pool; each row is written as soon as it is there, and what is there is not run again."""
    for cost in STEP_TIMES:
        for load in loads(pool_tokens):
            if cost == "dear" or load.name in CHEAP_LOADS:
                _run_load(pool_tokens, cost, load, seed)


def _run_load(pool_tokens: int, cost: str, load: Load, seed: int) -> None:
    clients, limits = POOLS[pool_tokens]
    capacity = Capacity(blocks=pool_tokens // BLOCK - 1, block_tokens=BLOCK)
    number = derived(load, pool_tokens)
    rate = (load.utilisation or 0.0) * _best_rate(pool_tokens, cost, load, seed)
    numbers = [str(limit) for limit in sorted({*limits, number, MOST_SEQUENCES})]
    for policy in [*numbers, "caps committed", "forecast"]:
        if _rows(pool_tokens, cost, load.name, seed, policy):
            continue
        gate: Gate = NoGate()
        if policy == "caps committed":
            gate = WorstCaseGate(capacity)
        elif policy == "forecast":
            gate = ForecastGate(capacity, load)
        limit = int(policy) if policy.isdigit() else MOST_SEQUENCES
        engine = Engine(capacity.blocks, BLOCK, STEP_TIMES[cost], limit=limit)
        seen = simulate(
            load.jobs(seed, REQUESTS), gate, engine,
            warm_up=WARM_UP, clients=0 if rate else clients, rate=rate, seed=seed,
        )  # fmt: skip
        _keep(pool=pool_tokens, cost=cost, load=load.name, policy=policy, number=number, seed=seed, seen=seen)


def _rows(pool: int, cost: str, load: str, seed: int, policy: str | None = None) -> list[dict[str, Any]]:
    wanted = {"part": "simulated", "pool": pool, "recompute": cost, "load": load, "seed": seed}
    wanted |= {} if policy is None else {"policy": policy}
    return [row for row in results() if wanted.items() <= row.items()]


def _best_rate(pool: int, cost: str, load: Load, seed: int) -> float:
    """Requests per second of the best fixed limit in the closed loop of the same load, which ran before."""
    closed = load.name.removesuffix(", open loop")
    fixed = [row for row in _rows(pool, cost, closed, seed) if row["policy"].isdigit()]
    return max((row["requests_per_second"] for row in fixed), default=0.0)


def _keep(*, pool: int, cost: str, load: str, policy: str, number: int, seed: int, seen: Seen) -> None:
    row = {"part": "simulated", "pool": pool, "recompute": cost, "load": load, "policy": policy, "derived": number}
    row |= {"seed": seed} | {key: round(value, 4) for key, value in asdict(seen).items()}
    keep(row)
    print(
        f"{pool} {cost} {load}, {policy}: {seen.tokens_per_second:,.0f} tokens/s, "
        f"{100 * seen.preempted_share:.2f} % preempted",
        flush=True,
    )


def keep(row: dict[str, Any]) -> None:
    """Add a row to the results."""
    rows = [*results(), row]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(each) for each in rows) + "\n]\n")


def results() -> list[dict[str, Any]]:
    """All rows so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def main() -> None:
    """Run what `BENCH_ADMISSION` says, then print the tables and write the picture."""
    seed = int(os.environ.get("BENCH_SEED", SEED))
    default = ",".join([*(f"simulated:{pool}" for pool in POOLS), "engine"])
    for item in os.environ.get("BENCH_ADMISSION", default).split(","):
        part, _, pool = item.partition(":")
        if part == "simulated":
            for each in [int(pool)] if pool else POOLS:
                run_simulated(each, seed)
        elif part == "engine":
            from bench import admission_server  # the engine's environment is installed on first use

            admission_server.run(seed)
    report(results())
