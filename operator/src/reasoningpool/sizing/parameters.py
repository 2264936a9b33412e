"""Counting parameters from a configuration, module by module as vLLM builds them (MTP layers left out)."""

from __future__ import annotations

from dataclasses import dataclass

from reasoningpool.sizing.config_reader import ConfigReader
from reasoningpool.sizing.weights import WeightCounts

_EXPERT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True)
class _Part:
    """Parameters of one block: split linear, whole linear, experts, small."""

    linear: int = 0
    whole: int = 0
    experts: int = 0
    small: int = 0

    def times(self, count: int) -> _Part:
        return _Part(self.linear * count, self.whole * count, self.experts * count, self.small * count)

    def plus(self, other: _Part) -> _Part:
        return _Part(
            self.linear + other.linear, self.whole + other.whole, self.experts + other.experts, self.small + other.small
        )


def count_parameters(
    reader: ConfigReader,
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    attention_layers: int,
    linear_layers: int,
) -> WeightCounts:
    """All parameters by kind. Qwen3-8B: 8.191 billion in total."""
    vocab = reader.integer("vocab_size", high=10**7)
    layers = attention_layers + linear_layers
    if reader.present("kv_lora_rank"):
        attention = _latent_attention(reader, hidden, heads)
    else:
        attention = _grouped_attention(reader, hidden, heads, kv_heads, head_dim)
    total = attention.times(attention_layers)
    if linear_layers:
        total = total.plus(_delta_net(reader, hidden).times(linear_layers))
    total = total.plus(_Part(small=2 * hidden).times(layers)).plus(_Part(small=hidden))
    moe_layers = _moe_layers(reader, layers)
    total = total.plus(_dense(reader, hidden).times(layers - moe_layers))
    experts = _experts(reader) if moe_layers else 0
    if moe_layers:
        total = total.plus(_moe(reader, hidden, experts).times(moe_layers))
    tied = reader.flag("tie_word_embeddings", default=False)
    return WeightCounts(
        linear=total.linear,
        replicated_linear=total.whole,
        experts=total.experts,
        embedding=vocab * hidden * (1 if tied else 2),
        small=total.small,
        experts_total=experts,
        experts_per_token=_chosen(reader) if moe_layers else 0,
    )


def _experts(reader: ConfigReader) -> int:
    return reader.optional(*_EXPERT_KEYS, high=10**5) or 0


def _chosen(reader: ConfigReader) -> int:
    return reader.integer("num_experts_per_tok", "num_experts_per_token", "moe_topk", high=10**5, default=1)


def _grouped_attention(reader: ConfigReader, hidden: int, heads: int, kv_heads: int, dim: int) -> _Part:
    family = reader.text("model_type")
    gated = reader.flag("attn_output_gate", default=family.startswith(("qwen3_next", "qwen3_5")))
    queries = heads * dim * (2 if gated else 1)
    linear = hidden * (queries + 2 * kv_heads * dim) + heads * dim * hidden
    small = 0
    if reader.flag("attention_bias", default=family.startswith("qwen2")):
        small += queries + 2 * kv_heads * dim
    if family == "gpt_oss":
        small += hidden + heads  # output bias and attention sinks
    if reader.text("qk_norm_type") == "per_layer":
        small += (heads + kv_heads) * dim
    elif family.startswith("qwen3") or reader.flag("use_qk_norm", default=False):
        small += 2 * dim
    return _Part(linear=linear, small=small)


def _latent_attention(reader: ConfigReader, hidden: int, heads: int) -> _Part:
    nope = reader.integer("qk_nope_head_dim", high=10**4)
    rope = reader.integer("qk_rope_head_dim", high=10**4)
    value = reader.integer("v_head_dim", high=10**4)
    kv_rank = reader.integer("kv_lora_rank", high=10**5)
    query_rank = reader.optional("q_lora_rank", high=10**5)
    whole = hidden * (kv_rank + rope)
    small = kv_rank
    split = kv_rank * heads * (nope + value) + heads * value * hidden
    if query_rank:
        whole += hidden * query_rank
        small += query_rank
        split += query_rank * heads * (nope + rope)
    else:
        split += hidden * heads * (nope + rope)
    return _Part(linear=split, whole=whole, small=small)


def _delta_net(reader: ConfigReader, hidden: int) -> _Part:
    keys = reader.integer("linear_num_key_heads", high=10**4) * reader.integer("linear_key_head_dim", high=10**4)
    value_heads = reader.integer("linear_num_value_heads", high=10**4)
    value_dim = reader.integer("linear_value_head_dim", high=10**4)
    values = value_heads * value_dim
    conv = reader.integer("linear_conv_kernel_dim", high=64, default=4)
    linear = hidden * (2 * keys + 2 * values) + values * hidden
    small = hidden * 2 * value_heads + (2 * keys + values) * conv + 2 * value_heads + value_dim
    return _Part(linear=linear, small=small)


def _dense(reader: ConfigReader, hidden: int) -> _Part:
    inner = reader.integer("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=4 * hidden)
    return _Part(linear=3 * hidden * inner)


def _moe_layers(reader: ConfigReader, layers: int) -> int:
    """Layers with routed experts."""
    if not _experts(reader):
        return 0
    dense_first = min(layers, reader.optional("first_k_dense_replace", high=10**4) or 0)
    every = reader.optional("decoder_sparse_step", "interleave_moe_layer_step", high=10**4) or 1
    dense_only = reader.values.get("mlp_only_layers")
    named = {i for i in dense_only if isinstance(i, int)} if isinstance(dense_only, (list, tuple)) else set()
    return sum(1 for i in range(dense_first, layers) if i not in named and (i + 1) % every == 0)


def _moe(reader: ConfigReader, hidden: int, experts: int) -> _Part:
    inner = reader.integer("moe_intermediate_size", "intermediate_size", "n_inner")
    small = hidden * experts  # router
    routed = experts * 3 * hidden * inner
    if reader.text("model_type") == "gpt_oss":
        small += experts + experts * (2 * inner + hidden)  # biases of router and experts
    if reader.text("scoring_func") == "sigmoid" or reader.flag("use_routing_bias", default=False):
        small += experts
    shared_width = reader.optional("shared_expert_intermediate_size", high=10**7) or 0
    if shared_width:
        small += hidden  # gate of the shared expert
    else:
        shared_width = (reader.optional("n_shared_experts", "num_shared_experts", high=10**4) or 0) * inner
    return _Part(linear=3 * hidden * shared_width, experts=routed, small=small)
