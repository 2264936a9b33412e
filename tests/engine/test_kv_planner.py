"""Groups, blocks, tokens and parameters equal those of vLLM's own planner and model classes, no tolerance.

vLLM 0.32 builds each model on torch's `meta` device and plans its KV cache as one rank of a parallel group; the sizing
reads the same configuration.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine import kv_planner
from engine.kv_planner import Case, Planned
from reasoningpool.model import Geometry
from reasoningpool.sizing import AcceleratorFacts, KVCacheDType
from reasoningpool.sizing.kv.block_size import base_block
from reasoningpool.sizing.kv.blocks import KVLayout, kv_layout
from reasoningpool.sizing.kv.kv_elements import KVElements, PackedKVCacheDType
from support import planner_models as m

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

HOPPER = AcceleratorFacts(
    product="H100", memory_bytes=85 * 10**9, compute_capability=(9, 0), memory_bandwidth_bytes_per_s=None
)
MTP = {"method": "mtp", "num_speculative_tokens": 2}
PACKED = {name.value: name for name in PackedKVCacheDType}

CASES: dict[str, Case] = {
    "qwen3-235b tp8 fp8": Case(config=m.QWEN3_235B, tensor_parallel=8, dtype="fp8", max_model_len=100_000),
    "qwen3-32b tp16 dcp2": Case(config=m.QWEN3_32B, tensor_parallel=16, context_parallel=2, max_model_len=40_000),
    "llama-70b tp4 pp2": Case(config=m.LLAMA_70B, tensor_parallel=4, pipeline_parallel=2, max_num_seqs=64),
    "glm-4.5-air tp2": Case(config=m.GLM_4_5_AIR, tensor_parallel=2, max_model_len=9_999),
    "deepseek-r1 tp8 dcp8": Case(config=m.DEEPSEEK_R1, tensor_parallel=8, context_parallel=8, max_model_len=131_072),
    "deepseek-r1 tp4 fp8 pp4": Case(
        config=m.DEEPSEEK_R1, tensor_parallel=4, pipeline_parallel=4, dtype="fp8", block_size=64, kernel_block=64
    ),
    "deepseek-v3.2 tp8": Case(config=m.DEEPSEEK_V32, tensor_parallel=8, block_size=64, kernel_block=64),
    "gpt-oss-120b tp2 pp2": Case(
        config=m.GPT_OSS_120B, tensor_parallel=2, pipeline_parallel=2, batched_tokens=2048, max_num_seqs=512
    ),
    "gpt-oss-120b tp2 no hybrid manager": Case(config=m.GPT_OSS_120B, tensor_parallel=2, hybrid_manager=False),
    "gemma-3-27b tp4": Case(config=m.GEMMA_3_27B, tensor_parallel=4, max_model_len=65_536, batched_tokens=4096),
    "gemma-4-26b tp2 fp8": Case(config=m.GEMMA_4_26B, tensor_parallel=2, dtype="fp8"),
    "gemma-4-e4b tp2": Case(config=m.GEMMA_4_E4B, tensor_parallel=2, max_model_len=100_000),
    "command-a tp8": Case(config=m.COMMAND_A, tensor_parallel=8, max_num_seqs=32),
    "exaone-4-32b tp2 pp4": Case(config=m.EXAONE_4_32B, tensor_parallel=2, pipeline_parallel=4),
    "qwen3-next tp2": Case(config=m.QWEN3_NEXT_80B, tensor_parallel=2, ssm_dtype="auto", max_model_len=65_536),
    "qwen3-next tp4 fp8 no prefixes": Case(
        config=m.QWEN3_NEXT_80B, tensor_parallel=4, ssm_dtype="auto", dtype="fp8", prefix_caching=False
    ),
    "qwen3-next tp2 block 64": Case(config=m.QWEN3_NEXT_80B, tensor_parallel=2, ssm_dtype="auto", block_size=64),
    "qwen3-next tp2 32-bit state": Case(config=m.QWEN3_NEXT_80B, tensor_parallel=2, ssm_dtype="float32"),
    "nemotron-nano-9b tp8": Case(config=m.NEMOTRON_NANO_9B, tensor_parallel=8, ssm_dtype="float32"),
    "granite-4-small tp4": Case(config=m.GRANITE_4_SMALL, tensor_parallel=4, ssm_dtype="auto"),
    "jamba-mini tp2 no prefixes": Case(config=m.JAMBA_MINI, tensor_parallel=2, ssm_dtype="auto", prefix_caching=False),
    "falcon-h1-34b tp2": Case(config=m.FALCON_H1_34B, tensor_parallel=2, ssm_dtype="auto"),
    "zamba2-2.7b tp2": Case(config=m.ZAMBA2_2_7B, tensor_parallel=2, ssm_dtype="auto", max_model_len=4096),
    "lfm2-1.2b tp4": Case(config=m.LFM2_1_2B, tensor_parallel=4),
    "qwen3-8b tp2 int8 per token and head": Case(config=m.QWEN3_8B, tensor_parallel=2, dtype="int8_per_token_head"),
    "qwen3-8b tp4 int4 per token and head": Case(config=m.QWEN3_8B, tensor_parallel=4, dtype="int4_per_token_head"),
    "qwen3-8b tp2 nvfp4": Case(config=m.QWEN3_8B, tensor_parallel=2, dtype="nvfp4"),
    "qwen3-8b tp2 turboquant k8v4": Case(config=m.QWEN3_8B, tensor_parallel=2, dtype="turboquant_k8v4"),
    "qwen3-8b tp1 turboquant 3bit": Case(config=m.QWEN3_8B, dtype="turboquant_3bit_nc"),
    "qwen3-next tp2 turboquant 4bit": Case(
        config=m.QWEN3_NEXT_80B, tensor_parallel=2, ssm_dtype="auto", dtype="turboquant_4bit_nc"
    ),
    "deepseek-r1 tp8 mtp": Case(config=m.DEEPSEEK_R1, tensor_parallel=8, speculative=MTP),
    "qwen3-next tp2 mtp": Case(config=m.QWEN3_NEXT_80B, tensor_parallel=2, ssm_dtype="auto", speculative=MTP),
    "llama-70b tp4 eagle": Case(
        config=m.LLAMA_70B,
        tensor_parallel=4,
        speculative={"method": "eagle", "num_speculative_tokens": 3, "config": m.LLAMA_EAGLE_HEAD},
    ),
    "gpt-oss-120b tp2 eagle3": Case(
        config=m.GPT_OSS_120B,
        tensor_parallel=2,
        speculative={"method": "eagle3", "num_speculative_tokens": 3, "config": m.GPT_OSS_EAGLE_HEAD},
    ),
    "qwen3-32b tp2 draft model": Case(
        config=m.QWEN3_32B,
        tensor_parallel=2,
        speculative={
            "method": "draft_model",
            "num_speculative_tokens": 3,
            "config": m.QWEN3_DRAFT,
            "draft_tensor_parallel_size": 2,
        },
    ),
}


@pytest.fixture(scope="module")
def planned() -> dict[str, Planned | str]:
    return dict(zip(CASES, kv_planner.plan(list(CASES.values())), strict=True))


def geometry_of(case: Case) -> Geometry:
    state = {"mamba_ssm_dtype": case.ssm_dtype} if case.ssm_dtype is not None else {}
    return Geometry.from_config(case.config | state)


def dtype_of(case: Case) -> KVElements:
    return {"auto": KVCacheDType.BF16, "fp8": KVCacheDType.FP8}.get(case.dtype) or PACKED[case.dtype]


def layout_of(case: Case) -> KVLayout:
    speculative: dict[str, Any] = case.speculative or {"num_speculative_tokens": 0}
    draft = speculative.get("config")
    return kv_layout(
        geometry_of(case),
        HOPPER,
        tensor_parallel=case.tensor_parallel,
        pipeline_parallel=case.pipeline_parallel,
        context_parallel=case.context_parallel,
        dtype=dtype_of(case),
        block_size=case.block_size,
        speculative_tokens=speculative["num_speculative_tokens"],
        draft_layers=1 if speculative.get("method") == "mtp" else 0,
        draft=Geometry.from_config(draft) if draft is not None else None,
        prefix_caching=case.prefix_caching,
        hybrid_manager=case.hybrid_manager,
    )


@pytest.mark.parametrize("name", CASES)
def test_layout_equals_what_the_planner_makes(planned: dict[str, Planned | str], name: str) -> None:
    case, theirs = CASES[name], planned[name]
    assert isinstance(theirs, Planned), theirs
    ours = layout_of(case)
    kinds = [group.kind for group in theirs.groups]
    others = sum(groups for _, groups in ours.other_full)
    assert (ours.full_groups + others, ours.sliding_groups, ours.state_groups) == (
        kinds.count("FullAttentionSpec") + kinds.count("MLAAttentionSpec"),
        kinds.count("SlidingWindowSpec"),
        kinds.count("MambaSpec"),
    )
    full = next(group for group in theirs.groups if group.kind in {"FullAttentionSpec", "MLAAttentionSpec"})
    assert ours.block_size == full.block_size
    assert ours.bytes_per_block == theirs.bytes_per_block
    assert case.pool_bytes // ours.bytes_per_block == theirs.num_blocks
    per_request = ours.planner_blocks(case.max_model_len, case.batched_tokens)
    assert per_request == sum(group.blocks for group in theirs.groups)
    assert theirs.num_blocks / per_request == theirs.concurrency
    assert int(theirs.num_blocks / per_request * case.max_model_len) == theirs.tokens


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.pipeline_parallel == 1])
def test_a_rank_holds_the_parameters_that_the_model_class_makes(planned: dict[str, Planned | str], name: str) -> None:
    case, theirs = CASES[name], planned[name]
    assert isinstance(theirs, Planned), theirs
    assert geometry_of(case).weights.parameters_per_gpu(case.tensor_parallel) == theirs.parameters[0]


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.kernel_block == 64])
def test_the_default_block_of_these_models_on_hopper_is_that_of_the_case(case: Case) -> None:
    assert base_block(geometry_of(case), HOPPER, dtype_of(case)) == case.block_size
