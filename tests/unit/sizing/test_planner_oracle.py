"""Groups, blocks and tokens equal those of vLLM's own KV planner (0.33, recorded in tests/data), no tolerance."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoningpool.sizing import KVCacheDType
from reasoningpool.sizing.kv.blocks import KVLayout, kv_layout
from unit.sizing.builders import GIB, accelerator, geometry

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "kv_plans_0_33.json").read_text())
POOL = 80 * GIB
IDS = {
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "DeepSeek-R1/V3": "deepseek-ai/DeepSeek-R1",
    "Kimi-K2": "moonshotai/Kimi-K2-Instruct",
    "R1-Distill-Qwen-32B": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "R1-Distill-Llama-70B": "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Magistral-Small-24B": "mistralai/Magistral-Small-2506",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "Qwen3-Next-80B-A3B": "Qwen/Qwen3-Next-80B-A3B-Thinking",
    "Qwen3.5-35B-A3B": "Qwen/Qwen3.5-35B-A3B",
    "Qwen3.5-27B": "Qwen/Qwen3.5-27B",
    "Qwen3.5-397B-A17B": "Qwen/Qwen3.5-397B-A17B",
    "GLM-4.5-Air": "zai-org/GLM-4.5-Air",
    "GLM-4.5": "zai-org/GLM-4.5",
    "MiniMax-M2": "MiniMaxAI/MiniMax-M2",
}


def layout_of(row: dict[str, Any]) -> KVLayout:
    layout = kv_layout(
        geometry(IDS[row["model"]]),
        accelerator("H100-SXM-80GB"),
        tensor_parallel=1,
        dtype=KVCacheDType.FP8 if row["dtype"] == "fp8" else KVCacheDType.BF16,
        block_size=16,  # recorded with the base block, not the 64 of FlashMLA
        prefix_caching=row["prefix_caching"],
    )
    if row["async_scheduling"]:
        return layout
    fields = {name: getattr(layout, name) for name in KVLayout.__dataclass_fields__}
    return KVLayout(**(fields | {"batches_in_flight": 1}))


def label(row: dict[str, Any]) -> str:
    parts = (row["model"], row["dtype"], row["max_len"], row["batched_tokens"])
    flags = ("" if row["async_scheduling"] else "-sync") + ("" if row["prefix_caching"] else "-noprefix")
    return "-".join(map(str, parts)) + flags


@pytest.mark.parametrize("row", RECORDED, ids=label)
def test_layout_equals_the_planner(row: dict[str, Any]) -> None:
    layout = layout_of(row)
    kinds = {
        "FullAttentionSpec": layout.full_groups,
        "MLAAttentionSpec": layout.full_groups,
        "SlidingWindowSpec": layout.sliding_groups,
        "MambaSpec": layout.state_groups,
    }
    recorded = [group[0] for group in row["groups"]]
    assert {kind: recorded.count(kind) for kind in recorded} == {kind: kinds[kind] for kind in recorded}
    assert layout.full_groups + layout.sliding_groups + layout.state_groups == len(recorded)
    assert layout.block_size == row["block"]
    assert layout.bytes_per_block == row["bytes_per_block"]
    blocks = POOL // layout.bytes_per_block
    assert blocks == row["num_blocks"]
    per_request = layout.planner_blocks(row["max_len"], row["batched_tokens"])
    assert per_request == sum(group[4] for group in row["groups"])
    assert round(blocks / per_request, 2) == row["conc"]
    assert int(blocks / per_request * row["max_len"]) == row["tokens"]


def test_every_recorded_model_and_variant_was_compared() -> None:
    assert len(RECORDED) == 49
    assert {row["model"] for row in RECORDED} == set(IDS)


@pytest.mark.parametrize(
    ("model", "megabytes"),
    [
        ("openai/gpt-oss-20b", 3.5),
        ("openai/gpt-oss-120b", 5.3),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", 80.2),
        ("Qwen/Qwen3.5-35B-A3B", 129.8),
        ("Qwen/Qwen3.5-27B", 308.3),
        ("Qwen/Qwen3.5-397B-A17B", 386.3),
        ("Qwen/Qwen3-8B", 0.0),
    ],
)
def test_constant_bytes_per_request(model: str, megabytes: float) -> None:
    layout = kv_layout(
        geometry(model), accelerator("H100-SXM-80GB"), tensor_parallel=1, dtype=KVCacheDType.BF16, block_size=None
    )
    assert layout.constant_blocks * layout.bytes_per_block / 1e6 == pytest.approx(megabytes, abs=0.05)
