"""Which keys of a `config.json` could change KV or weights, and which of them are read.

A key that looks as if it described layers, heads, windows, experts or state, that nothing here reads and that is not
known to be without effect on memory, makes the model one that is "not known": a figure computed past it could be wrong
by a factor. What only scales, normalises or regularises values changes no size and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from reasoningpool.model.families import FAMILIES

_SUSPECT: Final = re.compile(
    r"layer|window|chunk|expert|moe|mova|rank|lora|mamba|ssm|conv|linear|latent|kv|head|shar|attn|attention"
    r"|intermediate|hidden|ffn|mlp|block|pattern|group|index|sink|dim|size|num_|^n_|width|state|bias|gate|gating|norm"
    r"|mtp|nextn|embed|vocab|tie|altup|laurel|loop|depth|multi|freq|interval|period|channel|expan|compress|memory"
    r"|cache|gram|^hc_|zero|top_?k"
)
_WITHOUT_EFFECT: Final = re.compile(
    r"dropout|_pdrop|(^|_)act(ivation)?(_fn|_function)?$|eps(ilon)?$|_eps_|multiplier|scal(e|ing)(_|$)|^scale_|initializer"
    r"|init(_|$)|^use_cache|^output_|^return_|token_id$|token_index$|softcap|capping|^topk_group|^n_group"
    r"|^num_expert_group|_topk_prob|^topk_method|^rescale|feed_forward$|loss|coef|router_(dtype|logits|jitter|act)"
    r"|renormalize|mup_|temperature|rope|rotary|theta|dtype|time_step|chunk_size$|kernels$|logits_to_keep|pretraining"
    r"|bidirectional|combination|selection_fn|scoring|^attn_impl|_implementation$|query_pre_attn|mrope|yarn|rms_?norm$"
    r"|^norm_(type|reduce|min|topk|expert)|^moe_norm|id2label|label2id|^layernorm$|_seq_aux$|sparsity|logit|tokenizer"
    r"|^max_window_layers$|^qk_head_dim$|^layer_rope|bos|eos|image|video|audio|vision|quantiz|^problem|prun|embedding_mult"
    r"|overlap|upcast|^_|resid(ual)?_|norm_before_gate|norm_after|mlp_type|^expand$|^chunk|fp32|^is_causal|index_token"
    r"|rescale_prenorm|moe_layer_interval|^linear_(a_log|dt|allow|lower)|positions?$|^conv_use_|^block_norm_eps"
)
# Read by `spellings` and `families` beside what is below, or of no size in the layout that was compared.
_ALSO_KNOWN: Final = frozenset(
    {"post_layer_norm", "use_expert_bias", "moe_router_enable_expert_bias", "parallel_attn", "moe_layers", "qkv_bias"}
    | {"prefix_dense_sliding_window_pattern", "moe_layer_end_index", "dim_model_base", "use_post_norm"}
    | {"hybrid_layer_ids", "mtp_layers_block_type", "do_layer_norm_before", "enable_bias", "word_embed_proj_dim"}
    | {"layer_norm_elementwise_affine", "global_attn_every_n_layers", "no_rope_layer_interval", "route_norm"}
    | {"altup_num_inputs", "laurel_rank", "altup_active_idx", "altup_coef_clip", "altup_correct_scale"}
    | {"num_mem_blocks", "floor_scale", "mla_use_nope"}
    | {"indexer_rope_interleave", "index_skip_topk_offset", "use_grouped_topk", "num_key_value_heads"}
    | {"sandwich_norm", "lm_head_bias", "attention_k_eq_v", "enable_moe_block", "block_dim", "block_use_swiglu"}
    | {"conv_dim_out"}
)
_READ: Final = frozenset(
    {"adapter_rank", "add_bias_linear", "add_qkv_bias", "attention", "attention_bias", "attention_chunk_size"}
    | {"attention_head_dim", "attention_hidden_size", "attn_config", "attn_layer_indices", "attn_layer_offset"}
    | {"attn_layer_period", "attn_output_gate", "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier"}
    | {"block_multiple_of", "block_structure", "chunked_attention", "compressed_tensors", "compression_config"}
    | {"config_groups", "conv", "conv_L_cache", "conv_dim", "conv_kernel", "embed_positions", "embed_tokens"}
    | {"embed_tokens_per_layer", "expert_ffn_hidden_size", "expert_layer_offset", "expert_layer_period"}
    | {"experts_int8", "ffn_config", "ffn_dim", "ffn_hidden_size", "fp8_block", "fp8_per_block", "full_attention"}
    | {"full_attention_interval", "full_attn_idxs", "gate_up_proj_adapter", "glm4v_moe", "global_head_dim"}
    | {"group_size", "head_dim", "hidden_size", "hidden_size_per_layer_input", "hybrid_layer_pattern"}
    | {"hybrid_override_pattern", "ignored_layers", "index_head_dim", "index_n_heads", "index_topk"}
    | {"int4_experts", "interleave_moe_layer_step", "intermediate_size", "intermediate_size_mlp", "kda_layers"}
    | {"kimi_linear", "kv_channels", "kv_lora_rank", "kv_n_heads", "layer_types", "layers_block_type", "linear"}
    | {"linear_attention", "linear_attn_config", "linear_conv_kernel_dim", "linear_head_dim"}
    | {"linear_key_head_dim", "linear_num_heads", "linear_num_key_heads", "linear_num_value_heads"}
    | {"linear_value_head_dim", "lm_head", "mamba", "mamba2", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head"}
    | {"mamba_d_ssm", "mamba_d_state", "mamba_dt_rank", "mamba_expand", "mamba_head_dim", "mamba_headdim"}
    | {"mamba_n_groups", "mamba_n_heads", "mamba_ngroups", "mamba_num_heads", "mamba_rms_norm"}
    | {"mamba_ssm_cache_dtype", "mamba_ssm_dtype", "max_position_embeddings", "max_window_layers", "mlp"}
    | {"mlp_layer_types", "mlp_only_layers", "modules_to_not_convert", "moe", "moe_intermediate_size", "moe_k"}
    | {"moe_latent_size", "moe_layer_freq", "moe_layer_start_index", "moe_layers_enum", "moe_num_experts"}
    | {"moe_num_shared_experts", "moe_router_activation_func", "moe_shared_expert_intermediate_size", "moe_top_k"}
    | {"moe_topk", "mtp_num_hidden_layers", "multi_query", "multi_query_attention", "multi_query_group_num"}
    | {"n_embd", "n_groups", "n_head", "n_head_kv", "n_heads", "n_inner", "n_kv_heads", "n_layer", "n_layers"}
    | {"n_mamba_heads", "n_positions", "n_routed_experts", "n_shared_experts", "no_rope_layers", "norm", "norms"}
    | {"num_attention_groups", "num_attention_heads", "num_bits", "num_dense_layers", "num_experts"}
    | {"num_experts_per_tok", "num_experts_per_token", "num_global_key_value_heads", "num_heads"}
    | {"num_hidden_layers", "num_key_value_heads", "num_kv_heads", "num_kv_shared_layers", "num_layers"}
    | {"num_local_experts", "num_mem_blocks", "num_nextn_predict_layers", "num_query_groups", "num_shared_experts"}
    | {"original_max_position_embeddings", "padded_vocab_size", "pangu_ultra_moe", "per_layer"}
    | {"per_layer_input_gate", "per_layer_model_projection", "per_layer_projection", "per_layer_projection_norm"}
    | {"post_per_layer_input_norm", "q_group_size", "q_lora_rank", "qk_nope_head_dim", "qk_norm_type"}
    | {"qk_rope_head_dim", "rotary_dim", "share_expert_dim", "shared_expert_intermediate_size"}
    | {"shared_intermediate_size", "shared_norms", "short_conv_kernel_size", "sliding_attention", "sliding_window"}
    | {"sliding_window_pattern", "sliding_window_size", "ssm_state_size", "tie_word_embeddings", "top_k_experts"}
    | {"use_conv_bias", "use_qk_norm", "use_routing_bias", "use_shared_attention_adapter", "use_sliding_window"}
    | {"v_head_dim", "valid_tensor_parallel_sizes", "vocab_size", "vocab_size_per_layer_input"}
    | {"weight_block_size"}
)
_OF_FAMILY: Final = frozenset({("PanguEmbedded", "bias")})
_MOST_NAMED: Final = 4


def not_known(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a configuration (its text part) there is no known use of: the family, or keys of it.

    A key that is null, false, zero or empty is off. Empty for models that can be sized.
    """
    family = values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        return (f"model_type {family!r:.40}" if family is not None else "a configuration without model_type",)
    odd = sorted(
        key
        for key, value in values.items()
        if value not in (None, False, 0, "", [], {}, ())
        and _SUSPECT.search(key)
        and key not in _READ
        and key not in _ALSO_KNOWN
        and (family, key) not in _OF_FAMILY
        and not _WITHOUT_EFFECT.search(key)
    )
    return tuple(odd)


def uses(values: Mapping[str, Any], unknown: tuple[str, ...]) -> str:
    """What is not known, in words."""
    family = str(values.get("model_type", "the model"))[:40]
    names = ", ".join(unknown[:_MOST_NAMED]) + (" and more" if len(unknown) > _MOST_NAMED else "")
    if unknown[0].startswith(("model_type", "a configuration")):
        return f"not known how {names} uses KV cache and weights"
    return f"not known how {family} uses {names}"
