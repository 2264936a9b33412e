"""Configurations of models that are not in the recorded planner results, for vLLM's own classes.

Dimensions are those of published checkpoints as far as known, or plausible ones: what matters is that vLLM and the
sizing read the same file. Where one of vLLM's classes wants a key that the sizing has no use for, it is here too.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

COMMON: Config = {
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131_072,
}


def attention(*sizes: int) -> Config:
    """Keys of every transformer: hidden, inner, layers, heads, KV heads, head dimension, vocabulary."""
    hidden, inner, layers, heads, kv_heads, head_dim, vocab = sizes
    return COMMON | {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab,
    }  # fmt: skip


def qwen3(hidden: int, inner: int, layers: int, heads: int, *, tied: bool = False) -> Config:
    return attention(hidden, inner, layers, heads, 8, 128, 151_936) | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "max_window_layers": layers,
        "tie_word_embeddings": tied,
    }  # fmt: skip


def deepseek(**changes: Any) -> Config:
    """DeepSeek-V3 dimensions."""
    return attention(7168, 18_432, 61, 128, 128, 128, 129_280) | {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
        "first_k_dense_replace": 3, "moe_layer_freq": 1, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", "norm_topk_prob": True, "num_nextn_predict_layers": 1,
    } | changes  # fmt: skip


def sliding(config: Config, window: int, every: int) -> Config:
    """One full-attention layer in `every`, the rest with a window."""
    kinds = [
        "full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(config["num_hidden_layers"])
    ]
    return config | {"sliding_window": window, "layer_types": kinds}


LLAMA_70B = attention(8192, 28_672, 80, 64, 8, 128, 128_256) | {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
}  # fmt: skip
LLAMA_EAGLE_HEAD = LLAMA_70B | {"num_hidden_layers": 1}
QWEN3_8B = qwen3(4096, 12_288, 36, 32)
QWEN3_32B = qwen3(5120, 25_600, 64, 64)
QWEN3_DRAFT = qwen3(1024, 3072, 28, 16, tied=True)
QWEN3_235B = attention(4096, 12_288, 94, 64, 4, 128, 151_936) | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
}  # fmt: skip
GLM_4_5_AIR = attention(4096, 10_944, 46, 96, 8, 128, 151_552) | {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "moe_intermediate_size": 1408,
    "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": True, "use_qk_norm": False,
    "attention_bias": True, "partial_rotary_factor": 0.5,
}  # fmt: skip
DEEPSEEK_R1 = deepseek()
DEEPSEEK_V32 = deepseek(
    architectures=["DeepseekV32ForCausalLM"],
    model_type="deepseek_v32",
    index_topk=2048,
    index_n_heads=64,
    index_head_dim=128,
)
GPT_OSS_120B = sliding(attention(2880, 2880, 36, 64, 8, 64, 201_088), 128, 2) | {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 128,
    "num_experts_per_tok": 4, "initial_context_length": 4096, "attention_bias": True, "rope_theta": 150_000,
    "swiglu_limit": 7.0,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 4096, "truncate": False,
    },
}  # fmt: skip
GPT_OSS_EAGLE_HEAD = attention(2880, 11_520, 1, 64, 8, 64, 201_088) | {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
}  # fmt: skip
GEMMA_3_27B = attention(5376, 21_504, 62, 32, 16, 128, 262_208) | {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 1024,
    "sliding_window_pattern": 6, "query_pre_attn_scalar": 168, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}  # fmt: skip
GEMMA_4_26B = attention(2816, 2112, 30, 16, 8, 256, 262_144) | {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "global_head_dim": 512,
    "num_global_key_value_heads": 2, "attention_k_eq_v": True, "enable_moe_block": True, "num_experts": 128,
    "top_k_experts": 8, "moe_intermediate_size": 704, "sliding_window": 1024, "hidden_size_per_layer_input": 0,
    "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
}  # fmt: skip
GEMMA_4_E4B = attention(2560, 10_240, 42, 8, 2, 256, 262_144) | {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "global_head_dim": 512,
    "num_kv_shared_layers": 18, "sliding_window": 512, "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262_144, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
}  # fmt: skip
COMMAND_A = sliding(attention(12_288, 36_864, 64, 96, 8, 128, 256_000), 4096, 4) | {
    "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "layer_norm_eps": 1e-5, "logit_scale": 0.25,
    "tie_word_embeddings": True,
}  # fmt: skip
EXAONE_4_32B = sliding(attention(5120, 27_392, 64, 40, 8, 128, 102_400), 4096, 4) | {
    "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "sliding_window_pattern": 4,
}  # fmt: skip
QWEN3_NEXT_80B = attention(2048, 5120, 48, 16, 2, 256, 151_936) | {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "linear_num_value_heads": 32,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1, "norm_topk_prob": True, "mlp_only_layers": [],
    "partial_rotary_factor": 0.25, "rope_theta": 1e7, "num_nextn_predict_layers": 1,
}  # fmt: skip
NEMOTRON_NANO_9B = attention(4480, 15_680, 56, 40, 8, 128, 131_072) | {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "mamba_num_heads": 128,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "mamba_head_dim": 80,
    "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "mlp_hidden_act": "relu2", "layer_norm_epsilon": 1e-5,
}  # fmt: skip
GRANITE_4_SMALL = attention(4096, 768, 40, 32, 8, 128, 100_352) | {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
    "shared_intermediate_size": 1536, "layer_types": ["attention" if i % 10 == 5 else "mamba" for i in range(40)],
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4,
    "mamba_expand": 2, "num_local_experts": 72, "num_experts_per_tok": 10, "position_embedding_type": "nope",
    "embedding_multiplier": 12, "logits_scaling": 16, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125,
    "tie_word_embeddings": True,
}  # fmt: skip
JAMBA_MINI = attention(4096, 14_336, 32, 32, 8, 128, 65_536) | {
    "architectures": ["JambaForCausalLM"], "model_type": "jamba", "attn_layer_period": 8, "attn_layer_offset": 4,
    "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 16, "num_experts_per_tok": 2,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
}  # fmt: skip
FALCON_H1_34B = attention(5120, 21_504, 72, 20, 4, 128, 261_120) | {
    "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "mamba_d_ssm": 4096, "mamba_n_heads": 32,
    "mamba_d_head": 128, "mamba_n_groups": 2, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "ssm_multipliers": [1.0] * 5, "mlp_multipliers": [1.0, 1.0],
}  # fmt: skip
_ZAMBA_HYBRID = {6, 12, 18, 24, 30, 36, 42, 47, 51}
ZAMBA2_2_7B = COMMON | {
    "architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2", "hidden_size": 2560, "intermediate_size": 10_240,
    "num_hidden_layers": 54, "layers_block_type": ["hybrid" if i in _ZAMBA_HYBRID else "mamba" for i in range(54)],
    "num_attention_heads": 32, "num_key_value_heads": 32, "n_mamba_heads": 80, "mamba_d_state": 64, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_ngroups": 1, "num_mem_blocks": 1, "use_shared_attention_adapter": True,
    "adapter_rank": 128, "vocab_size": 32_000, "max_position_embeddings": 4096, "hidden_act": "gelu",
    "tie_word_embeddings": True,
}  # fmt: skip
LFM2_1_2B = attention(2048, 12_288, 16, 32, 8, 64, 65_536) | {
    "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "conv_L_cache": 3, "conv_dim": 2048,
    "block_dim": 2048, "conv_bias": False, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
    "layer_types": ["full_attention" if i in {2, 5, 8, 10, 12, 14} else "conv" for i in range(16)],
    "block_auto_adjust_ff_dim": True, "norm_eps": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
