"""Every text-generation architecture of vLLM: KV and weights equal the planner's and the model class's, or refused.

Recorded with vLLM 0.32 by `e2e/bench/architecture_sweep.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.architecture_sweep import BATCHED_TOKENS, DATA, POOL_BYTES, lengths_of
from reasoningpool.model import Geometry
from reasoningpool.model.errors import SizingError
from reasoningpool.sizing import AcceleratorFacts, KVCacheDType
from reasoningpool.sizing.kv.blocks import kv_layout
from unit.sizing.builders import accelerator

ENTRIES: dict[str, Any] = json.loads(Path(DATA).read_text(encoding="utf-8"))
PLANNED = {
    (name, variant): plan
    for name, entry in ENTRIES.items()
    for variant, plan in entry["plans"].items()
    if isinstance(plan, dict)
}


# By `tests/engine/test_kv_planner.py` with published dimensions, or (Qwen3.5) as Qwen3-Next with other dimensions.
COMPARED_ELSEWHERE = frozenset({"falcon_h1", "lfm2", "nemotron_h", "qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_text"})


def geometry_of(name: str) -> Geometry | None:
    """The architecture's geometry, `None` where it is refused."""
    try:
        found = Geometry.from_config(ENTRIES[name]["config"])
    except SizingError:
        return None
    return None if found.unknown else found


def device_of(name: str, variant: str) -> AcceleratorFacts:
    """Hopper; sparse latent attention in FP8 packs otherwise there than the CPU build, as which Blackwell does."""
    sparse = ENTRIES[name]["config"].get("index_topk") and variant.endswith("fp8")
    return accelerator("B200-180GB" if sparse else "H100-SXM-80GB")


@pytest.mark.parametrize(("name", "variant"), PLANNED, ids=str)
def test_an_architecture_is_planned_as_vllm_plans_it_or_refused(name: str, variant: str) -> None:
    geometry, theirs = geometry_of(name), PLANNED[name, variant]
    if geometry is None:
        return
    ranks = int(variant.split(maxsplit=1)[0].removeprefix("tp"))
    dtype = KVCacheDType.FP8 if variant.endswith("fp8") else KVCacheDType.BF16
    layout = kv_layout(geometry, device_of(name, variant), tensor_parallel=ranks, dtype=dtype, block_size=16)
    blocks = POOL_BYTES // layout.bytes_per_block
    assert layout.bytes_per_block == theirs["bytes_per_block"]
    assert blocks == theirs["num_blocks"]
    tokens = [
        int(blocks / layout.planner_blocks(length, BATCHED_TOKENS) * length)
        for length in lengths_of(ENTRIES[name]["config"])
    ]
    assert tokens == theirs["tokens"]
    assert geometry.weights.parameters_per_gpu(ranks) == theirs["parameters"]


def test_an_architecture_that_vllm_did_not_plan_here_is_refused() -> None:
    """What could not be compared may not be sized under a family's name either, unless another one stands for it."""
    compared = COMPARED_ELSEWHERE | {ENTRIES[name]["config"]["model_type"] for name, _ in PLANNED}
    never = [name for name, entry in ENTRIES.items() if not any(isinstance(p, dict) for p in entry["plans"].values())]
    sized = [n for n in never if ENTRIES[n]["config"].get("model_type") not in compared and geometry_of(n) is not None]
    assert sized == []
