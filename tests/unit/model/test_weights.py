"""Weights on one GPU: public start-up logs, quantization formats, ignore lists and padding."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.model import Geometry, GeometryError
from reasoningpool.model.matrices import Kind
from reasoningpool.model.quantization import quantized_bytes
from reasoningpool.model.weights import WeightFormat
from support.planner_models import attention
from unit.sizing.builders import GIB, dense_config, geometry

CATALOG = "catalog"
QWEN2_5_14B = attention(5120, 13_824, 48, 40, 8, 128, 152_064) | {"model_type": "qwen2"}
QWEN2_7B = attention(3584, 18_944, 28, 28, 4, 128, 152_064) | {"model_type": "qwen2", "max_position_embeddings": 32_768}
QWEN2_5_32B = attention(5120, 27_648, 64, 40, 8, 128, 152_064) | {"model_type": "qwen2"}
QWEN3_0_6B = attention(1024, 3072, 28, 16, 8, 128, 151_936) | {
    "model_type": "qwen3", "max_position_embeddings": 40_960, "tie_word_embeddings": True,
}  # fmt: skip
EXAONE_4_32B = attention(5120, 27_392, 64, 40, 8, 128, 102_400) | {"model_type": "exaone4"}

# observation, model or configuration, GPUs, expert parallelism, compute capability, "Model loading took ... GiB"
LOGS: list[tuple[str, str | dict[str, Any], str | None, int, bool, tuple[int, int], float]] = [
    ("kv004", QWEN2_5_14B, None, 2, False, (8, 9), 13.9476),
    ("kv015", QWEN2_7B, None, 2, False, (8, 0), 7.1217),
    ("kv017", "meta-llama/Llama-3.1-8B-Instruct", CATALOG, 1, False, (9, 0), 14.9889),
    ("kv041", "openai/gpt-oss-20b", CATALOG, 1, False, (8, 0), 13.72),
    ("kv044", "openai/gpt-oss-20b", CATALOG, 1, False, (9, 0), 13.47),
    ("kv046", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", CATALOG, 2, False, (9, 0), 33.88),
    ("kv050", QWEN3_0_6B, None, 1, False, (9, 0), 1.12),
    ("kv051", "Qwen/Qwen3-32B", CATALOG, 1, False, (9, 0), 61.03),
    ("kv061", QWEN2_5_32B, None, 1, False, (8, 0), 61.04),
    ("kv062", "Qwen/Qwen3-Next-80B-A3B-Instruct", CATALOG, 2, False, (9, 0), 74.2812),
    ("kv066", "Qwen/Qwen3-8B", CATALOG, 1, False, (8, 0), 15.2683),
    ("kv069", "Qwen/Qwen3-235B-A22B-FP8", CATALOG, 8, True, (8, 9), 27.72),
    ("kv084", EXAONE_4_32B, "fp8", 1, False, (8, 9), 30.9891),
]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log[0])
def test_weights_equal_what_engines_loaded(log: tuple[Any, ...]) -> None:
    _, model, quantization, ranks, expert_parallel, capability, gibibytes = log
    found = geometry(model) if quantization == CATALOG else Geometry.from_config(model, quantization)
    held = found.weights.bytes_per_gpu(
        found.weight_format, ranks, expert_parallel=expert_parallel, compute_capability=capability
    )
    assert held / GIB == pytest.approx(gibibytes, rel=2.5e-3)


@pytest.mark.parametrize(
    ("fmt", "group", "expected"),
    [
        (WeightFormat.BF16, 128, 2 * 2**20),
        (WeightFormat.FP8, 128, 2**20 + 4 * 1024),
        (WeightFormat.FP8_BLOCK, 128, 2**20 + 4 * 64),
        (WeightFormat.INT8, 128, 2**20 + 2 * 8192),
        (WeightFormat.INT4, 128, 2**19 + 2.5 * 8192),
        (WeightFormat.INT4, 32, 2**19 + 2.5 * 32_768),
        (WeightFormat.INT4_EXPERTS, 128, 2**19 + 2 * 32_768),
        (WeightFormat.BNB4, 128, 2**19 + 2 * 16_384),
        (WeightFormat.MXFP4, 128, 2**19 + 32_768),
        (WeightFormat.NVFP4, 128, 2**19 + 65_536),
    ],
)
def test_bytes_of_a_square_matrix_with_its_scales(fmt: WeightFormat, group: int, expected: float) -> None:
    assert sum(quantized_bytes(fmt, 1024, 1024, group)) == expected


def unquantized(ignored: list[str], key: str = "modules_to_not_convert", **changes: Any) -> dict[str, int]:
    """Layers in which each module stays 16 bit."""
    config = dense_config(quantization_config={"quant_method": "fp8", key: ignored}, **changes)
    found: dict[str, int] = {}
    for matrix in Geometry.from_config(config).weights.matrices:
        if not matrix.quantized:
            found[matrix.name] = matrix.layers
    return found


_ALL = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
)


@pytest.mark.parametrize(
    ("ignored", "expected"),
    [
        ([], {}),
        (["lm_head"], {}),
        (["model.layers.1.self_attn.o_proj"], {"self_attn.o_proj": 1}),
        (["model.layers.0.mlp", "model.layers.3.mlp"], {"mlp.up_proj": 2, "mlp.gate_proj": 2, "mlp.down_proj": 2}),
        (["o_proj"], {"self_attn.o_proj": 4}),
        (["_proj"], {}),
        (["model.layers.*.mlp.down_proj"], {"mlp.down_proj": 4}),
        (["re:.*down_proj$"], {"mlp.down_proj": 4}),
        (["re:.*layers\\.(0|2)\\.mlp\\.down.*"], {"mlp.down_proj": 2}),
        (["model.language_model.layers.1.self_attn.o_proj"], {"self_attn.o_proj": 1}),
        (["re:visual.*", "vision_tower"], {}),
        (["layers.1", "0.mlp", "model"], dict.fromkeys(_ALL, 4)),
        (["layers.1", "mlp.down"], dict.fromkeys(_ALL, 1)),
    ],
)
def test_modules_that_a_checkpoint_leaves_in_16_bit(ignored: list[str], expected: dict[str, int]) -> None:
    assert unquantized(ignored) == expected
    assert unquantized(ignored, "ignore") == expected


def test_ignored_modules_weigh_twice_and_layers_are_neither_lost_nor_doubled() -> None:
    method = {"quant_method": "fp8"}
    plain = Geometry.from_config(dense_config(quantization_config=method)).weights
    some = Geometry.from_config(
        dense_config(quantization_config=method | {"ignored_layers": ["model.layers.1.mlp.down_proj"]})
    ).weights
    assert some.total == plain.total
    more = some.bytes_total(WeightFormat.FP8) - plain.bytes_total(WeightFormat.FP8)
    assert more == 128 * 256 - 4 * 128  # one more byte a value, no scales


@pytest.mark.parametrize(
    "expression",
    [
        "re:(a+)+$",
        "re:(a|a)*b",
        "re:.*.*.*.*.*x",
        "re:(?!.*mlp).*",
        "re:[",
        "re:(a)\\1",
        "re:a{2}{3}",
        "re:" + ".?" * 100 + "zz",  # took 0.1 s for 22 of them, twice as long for each one more
        "re:" + "(.|..)" * 20 + "zz",
        "re:" + ".{0,99}" * 5 + "z",
    ],
)
def test_an_expression_that_could_run_away_is_refused_by_its_key(expression: str) -> None:
    with pytest.raises(GeometryError, match="unsupported expression") as caught:
        unquantized([expression])
    assert caught.value.field == "modules_to_not_convert"


def test_patterns_that_take_long_together_are_refused_by_their_key() -> None:
    with pytest.raises(GeometryError, match="too many patterns") as caught:
        unquantized([f"re:.*a.*b.*{number}" for number in range(100)])
    assert caught.value.field == "modules_to_not_convert"


def test_patterns_of_real_checkpoints_are_not_too_many() -> None:
    common = [r"re:.*\.mlp\.(gate|up)_proj$", r"re:model\.(language_model\.)?layers\.\d+\.mlp.*", "*.o_proj"] * 8
    assert unquantized(common) == {
        "self_attn.o_proj": 4, "mlp.gate_proj": 4, "mlp.up_proj": 4, "mlp.down_proj": 4,
    }  # fmt: skip


def test_names_without_end_are_refused() -> None:
    with pytest.raises(GeometryError, match="more than 20000 names"):
        unquantized(["x" * 300])


GROUPS_OF_32 = {"num_bits": 4, "group_size": 32}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 64),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 65_536),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32}, 32),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            32,
        ),
        ({"quant_method": "fp8"}, 128),
    ],
)
def test_scale_groups_are_those_of_the_checkpoint(stored: dict[str, Any], expected: int) -> None:
    assert Geometry.from_config(dense_config(quantization_config=stored)).quantization.group_size == expected


def test_block_scales_differ_from_channel_scales() -> None:
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert Geometry.from_config(dense_config(**blocks)).weight_format is WeightFormat.FP8_BLOCK
    structured = {"num_bits": 8, "type": "float", "block_structure": [128, 128]}
    tensors = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": structured}}}
    found = Geometry.from_config(dense_config(quantization_config=tensors))
    assert found.weight_format is WeightFormat.FP8_BLOCK


def test_mixture_experts_are_padded_by_the_kernels_of_the_gpu() -> None:
    weights = geometry("openai/gpt-oss-20b").weights
    held = {
        capability: weights.bytes_per_gpu(WeightFormat.MXFP4, 1, compute_capability=capability) / GIB
        for capability in (None, (8, 0), (9, 0), (10, 0))
    }
    assert held[9, 0] == pytest.approx(13.5, abs=0.01)
    assert held[8, 0] == held[10, 0] == held[None] == pytest.approx(13.7, abs=0.01)
    assert weights.bytes_total(WeightFormat.MXFP4) / GIB == pytest.approx(12.8, abs=0.02)


def test_expert_parallelism_deals_experts_out_whole() -> None:
    weights = geometry("Qwen/Qwen3-235B-A22B").weights
    cut, dealt = (weights.parameters_per_gpu(8, expert_parallel=whole) for whole in (False, True))
    assert cut == dealt  # 128 experts over 8
    fuller = weights.parameters_per_gpu(48, expert_parallel=True)
    experts = sum(matrix.parameters for matrix in weights.matrices if matrix.kind is Kind.EXPERTS)
    assert fuller > experts * 3 // 128  # 2.7 experts a rank are 3 on the fullest
