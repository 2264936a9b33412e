"""KV bytes, weights and contexts from a config.json, against the figures of vLLM's planner."""

from typing import Any

import pytest

from reasoningpool.model import Geometry, GeometryError, valid_tensor_parallel_sizes
from reasoningpool.model.weights import WeightFormat
from unit.sizing.builders import dense_config, geometry

# model, KV bytes per token in bf16 and fp8, parameters in 1e9, weights in GB as published by the checkpoint
TABLE = [
    ("Qwen/Qwen3-8B", 147_456, 73_728, 8.191, 16.38),
    ("Qwen/Qwen3-8B-FP8", 147_456, 73_728, 8.191, 9.44),
    ("Qwen/Qwen3-32B", 262_144, 131_072, 32.762, 65.52),
    ("Qwen/Qwen3-32B-FP8", 262_144, 131_072, 32.762, 34.33),
    ("Qwen/Qwen3-30B-A3B", 98_304, 49_152, 30.532, 61.06),
    ("Qwen/Qwen3-30B-A3B-FP8", 98_304, 49_152, 30.532, 31.16),
    ("Qwen/Qwen3-235B-A22B", 192_512, 96_256, 235.094, 470.19),
    ("Qwen/Qwen3-235B-A22B-FP8", 192_512, 96_256, 235.094, 236.40),
    ("deepseek-ai/DeepSeek-R1", 70_272, 35_136, 671.026, 673.04),
    ("deepseek-ai/DeepSeek-V3", 70_272, 35_136, 671.026, 673.04),
    ("moonshotai/Kimi-K2-Instruct", 70_272, 35_136, 1026.408, 1029.01),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 262_144, 131_072, 32.764, 65.53),
    ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", 327_680, 163_840, 70.554, 141.11),
    ("meta-llama/Llama-3.1-70B-Instruct", 327_680, 163_840, 70.554, 141.11),
    ("meta-llama/Llama-3.1-8B-Instruct", 131_072, 65_536, 8.030, 16.06),
    ("mistralai/Magistral-Small-2506", 163_840, 81_920, 23.572, 47.14),
    ("openai/gpt-oss-20b", 24_576, 12_288, 20.915, 13.76),
    ("openai/gpt-oss-120b", 36_864, 18_432, 116.829, 65.25),
    ("Qwen/Qwen3-Next-80B-A3B-Thinking", 24_576, 12_288, 79.674, 159.35),
    ("Qwen/Qwen3.5-35B-A3B", 20_480, 10_240, 34.661, 69.32),
    ("Qwen/Qwen3.5-27B", 65_536, 32_768, 26.9, 53.8),
    ("Qwen/Qwen3.5-397B-A17B", 30_720, 15_360, 396.346, 792.69),
    ("zai-org/GLM-4.5-Air", 188_416, 94_208, 106.852, 213.75),
    ("zai-org/GLM-4.5", 376_832, 188_416, 352.798, 705.74),
    ("MiniMaxAI/MiniMax-M2", 253_952, 126_976, 228.690, 230.07),
]


@pytest.mark.parametrize(("model", "bf16", "fp8", "billions", "gigabytes"), TABLE)
def test_kv_bytes_and_weights(model: str, bf16: int, fp8: int, billions: float, gigabytes: float) -> None:
    found = geometry(model)
    assert found.kv_bytes_per_token(2) == bf16
    assert found.kv_bytes_per_token(1) == fp8
    assert found.weights.total / 1e9 == pytest.approx(billions, rel=1e-3)
    assert found.weights.bytes_total(found.weight_format) / 1e9 == pytest.approx(gigabytes, rel=2e-3)


@pytest.mark.parametrize(("ranks", "expected"), [(1, 131_072), (2, 65_536), (4, 32_768), (8, 16_384), (16, 16_384)])
def test_tensor_parallelism_splits_kv_heads_and_replicates_beyond(ranks: int, expected: int) -> None:
    assert geometry("Qwen/Qwen3-32B").kv_bytes_per_token(1, tensor_parallel=ranks) == expected


def test_weights_split_over_ranks_but_norms_and_latent_projections_do_not() -> None:
    found = geometry("deepseek-ai/DeepSeek-R1")
    whole, eighth = (found.weights.bytes_per_gpu(WeightFormat.FP8, ranks) for ranks in (1, 8))
    total = found.weights.bytes_total(WeightFormat.FP8)
    absorbed = 61 * 128 * (128 + 128) * 512 * 2  # 16-bit copies of kv_b_proj that decoding uses
    assert whole == pytest.approx(total + absorbed, rel=1e-3)
    replicated = found.weights.replicated_linear + 2 * found.weights.small
    assert eighth == pytest.approx((whole - replicated) / 8 + replicated, rel=1e-2)


def test_one_step_of_a_mixture_reads_the_experts_it_touches() -> None:
    found = geometry("Qwen/Qwen3-30B-A3B")
    one, many = (found.weights.bytes_read_per_step(WeightFormat.BF16, 1, n) for n in (1, 256))
    assert one / 1e9 == pytest.approx(6.1, abs=0.3)  # 3.3 B active parameters without the input embedding
    assert many / 1e9 == pytest.approx(60.4, abs=0.5)


@pytest.mark.parametrize(
    ("changes", "full", "sliding", "state"),
    [
        ({}, 4, 0, 0),
        ({"sliding_window": 1024}, 4, 0, 0),  # qwen: only with use_sliding_window
        ({"sliding_window": 1024, "use_sliding_window": True, "max_window_layers": 1}, 1, 3, 0),
        ({"model_type": "mistral", "sliding_window": 4096}, 0, 4, 0),  # all layers slide
        ({"model_type": "gemma2", "sliding_window": 4096}, 2, 2, 0),
        ({"sliding_window": 128, "sliding_window_pattern": 4, "model_type": "cohere2"}, 1, 3, 0),
        ({"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 128}, 2, 2, 0),
        ({"layer_types": ["full_attention"] * 9}, 4, 0, 0),
    ],
)
def test_layer_kinds(changes: dict[str, Any], full: int, sliding: int, state: int) -> None:
    found = Geometry.from_config(dense_config(**changes))
    assert (found.full_layers, found.sliding_layers, found.state_layers) == (full, sliding, state)


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (None, 8192),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16_384),
        ({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163_840),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 8192),
        ({"rope_type": "linear", "factor": 2.0}, 16_384),
    ],
)
def test_native_context_with_scaled_positions(rope: dict[str, Any] | None, expected: int) -> None:
    assert Geometry.from_config(dense_config(rope_scaling=rope)).native_context_tokens == expected


@pytest.mark.parametrize(
    ("config", "quantization", "expected"),
    [
        ({}, None, WeightFormat.BF16),
        ({}, "FP8", WeightFormat.FP8),
        ({"quantization_config": {"quant_method": "fp8"}}, None, WeightFormat.FP8),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, None, WeightFormat.INT4),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, None, WeightFormat.INT8),
        ({"quantization_config": {"quant_method": "mxfp4"}}, None, WeightFormat.MXFP4),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, None, WeightFormat.NVFP4),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
                }
            },
            None,
            WeightFormat.FP8,
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
                }
            },
            None,
            WeightFormat.INT4,
        ),
        ({"quantization_config": {"quant_method": "never-heard-of"}}, None, WeightFormat.BF16),
    ],
)
def test_weight_format(config: dict[str, Any], quantization: str | None, expected: WeightFormat) -> None:
    assert Geometry.from_config(dense_config(**config), quantization).weight_format is expected


def test_the_text_part_of_a_multimodal_model_counts() -> None:
    wrapped = {"model_type": "qwen3_vl", "tie_word_embeddings": True, "text_config": dense_config()}
    found = Geometry.from_config(wrapped)
    assert found.kv_bytes_per_token(2) == 1024
    assert found.weights.embedding == 2048 * 128


def test_multi_query_and_missing_kv_heads() -> None:
    config = dense_config()
    del config["num_key_value_heads"]
    assert Geometry.from_config(config).kv_heads == 4
    assert Geometry.from_config(config | {"multi_query": True}).kv_heads == 1


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_key_value_heads": -1}, "num_key_value_heads"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": "64"}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 4.5}, "num_hidden_layers"),
        ({"num_hidden_layers": float("nan")}, "num_hidden_layers"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": 130, "head_dim": None}, "head_dim"),
        ({"head_dim": 10**9}, "head_dim"),
        ({"vocab_size": -5}, "vocab_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["what\n"] * 4}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 4}, "linear_num_key_heads"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "qk_nope_head_dim"),
        ({"num_experts": 8, "moe_intermediate_size": 0}, "moe_intermediate_size"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, "factor"),
        ({"mamba_d_state": 128}, "mamba_d_state"),
        ({"global_head_dim": 10**9}, "global_head_dim"),
    ],
)
def test_an_absurd_configuration_is_answered_with_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(GeometryError) as caught:
        Geometry.from_config(dense_config(**changes))
    assert caught.value.field == key
    assert key in str(caught.value)


@pytest.mark.parametrize("config", [None, [], "text", 5])
def test_configuration_that_is_not_an_object(config: Any) -> None:
    with pytest.raises(GeometryError, match="JSON object"):
        Geometry.from_config(config)


def test_an_unknown_quantization_lists_the_known_ones() -> None:
    with pytest.raises(GeometryError, match=r"supported: .*awq.*fp8"):
        Geometry.from_config(dense_config(), "fp7")


@pytest.mark.parametrize(
    ("heads", "up_to", "expected"), [(40, 6, (1, 2, 4, 5)), (64, 8, (1, 2, 4, 8)), (1, 100, (1,)), (7, 0, ())]
)
def test_valid_tensor_parallel_sizes(heads: int, up_to: int, expected: tuple[int, ...]) -> None:
    assert valid_tensor_parallel_sizes(heads, up_to) == expected


HYBRID = {"num_key_value_heads": 2, "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 16}
MAMBA = {"mamba_d_state": 16, "mamba_n_heads": 8, "mamba_expand": 2}


@pytest.mark.parametrize(
    ("changes", "full", "sliding", "state", "total"),
    [
        ({**HYBRID, "hybrid_override_pattern": "M-M*E"}, 1, 0, 2, 5),
        ({**MAMBA, "layer_types": ["mamba", "mamba", "attention", "mamba"]}, 1, 0, 3, 4),
        ({**MAMBA, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]}, 2, 0, 4, 4),
        ({**MAMBA, "attn_layer_indices": [1, 2]}, 2, 0, 2, 4),
        ({**MAMBA, "attn_layer_period": 2, "attn_layer_offset": 1}, 2, 0, 2, 4),
        ({**MAMBA, "model_type": "falcon_h1"}, 4, 0, 4, 4),
        ({"conv_L_cache": 3, "layer_types": ["conv", "conv", "full_attention", "conv"]}, 1, 0, 3, 4),
        ({"sliding_window": 64, "sliding_window_pattern": "LLG", "model_type": "exaone4"}, 2, 2, 0, 4),
        ({"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2}, 2, 2, 0, 4),
        (
            {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2,
             "num_kv_shared_layers": 2}, 1, 1, 0, 4,
        ),
    ],
)  # fmt: skip
def test_hybrid_layers_are_read_from_every_familys_keys(
    changes: dict[str, Any], full: int, sliding: int, state: int, total: int
) -> None:
    found = Geometry.from_config(dense_config(**changes))
    assert (found.full_layers, found.sliding_layers, found.state_layers) == (full, sliding, state)
    assert found.num_layers == total


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hybrid_override_pattern": "MXM*"}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": 7}, "hybrid_override_pattern"),
        ({**HYBRID, "hybrid_override_pattern": "MM-"}, "hybrid_override_pattern"),
        ({"layer_types": ["mamba", "attention"] * 2}, "linear_num_key_heads"),
        ({**MAMBA, "attn_layer_indices": [0, -1]}, "attn_layer_indices"),
        ({**MAMBA, "mamba_d_head": 7, "attn_layer_indices": [0]}, "mamba_d_head"),
        ({**MAMBA, "mamba_ssm_dtype": "float8", "attn_layer_indices": [0]}, "mamba_ssm_dtype"),
        ({"conv_L_cache": 3, "conv_dim": 64, "layer_types": ["conv", "full_attention"] * 2}, "conv_dim"),
        ({"num_kv_shared_layers": 4, "sliding_window": 64}, "num_kv_shared_layers"),
        ({"num_global_key_value_heads": 3}, "num_global_key_value_heads"),
        ({"model_type": "cohere2", "sliding_window_pattern": -2, "sliding_window": 64}, "sliding_window_pattern"),
    ],
)
def test_hybrids_that_do_not_add_up_are_answered_with_their_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(GeometryError) as caught:
        Geometry.from_config(dense_config(**changes))
    assert caught.value.field == key
