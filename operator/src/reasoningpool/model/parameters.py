"""Building the list of a model's weight matrices from its configuration, module by module as vLLM does.

MTP layers are left out. Mixers of linear attention are in `state_parameters`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.families import QueryKeyNorm, family_of
from reasoningpool.model.feed_forward import expert_count, experts_per_token, feed_forward
from reasoningpool.model.layers import AttentionShape, Dimensions, LayerKind
from reasoningpool.model.matrices import Kind, Matrix, Split, linear, placed, small
from reasoningpool.model.quantization import Quantization
from reasoningpool.model.state_parameters import state_matrices
from reasoningpool.model.weights import WeightCounts
from reasoningpool.model.zamba_parameters import zamba_matrices

_NO_ROTARY: Final = frozenset({"opt", "gpt2", "gpt_bigcode", "nemotron_h", "jamba", "mpt"})


def count_parameters(reader: ConfigReader, dimensions: Dimensions, scheme: Quantization) -> WeightCounts:
    """All matrices of the model."""
    kinds = dimensions.kinds
    found: list[Matrix] = []
    full = [i for i, kind in enumerate(kinds) if kind.is_full]
    sliding = [i for i, kind in enumerate(kinds) if kind is LayerKind.SLIDING]
    state = [i for i, kind in enumerate(kinds) if kind.has_state]
    if reader.present("kv_lora_rank"):
        found += placed(_latent_attention(reader, dimensions), full + sliding, scheme)
    else:
        found += placed(_grouped_attention(reader, dimensions, dimensions.full), full, scheme)
        found += placed(_grouped_attention(reader, dimensions, dimensions.sliding), sliding, scheme)
    for kind, shape in (
        (LayerKind.SHARED_FULL, dimensions.full),
        (LayerKind.SHARED_SLIDING, dimensions.sliding),
    ):
        shared = [i for i, other in enumerate(kinds) if other is kind]
        found += placed(_shared_attention(reader, dimensions, shape), shared, scheme)
    found += placed(state_matrices(reader, dimensions.hidden) if state else (), state, scheme)
    found += feed_forward(reader, dimensions, scheme)
    if reader.text("model_type") == "zamba2":
        blocks = [matrix for matrix in found if matrix.name.startswith(("self_attn.", "mlp."))]
        own = [matrix for matrix in found if matrix not in blocks]
        found = own + zamba_matrices(reader, dimensions.hidden, blocks, len(full))
    found += _norms(reader, dimensions)
    found += _tables(reader, dimensions)
    found += _per_layer_inputs(reader, dimensions)
    found += _alternating_updates(reader, dimensions)
    experts = expert_count(reader)
    return WeightCounts(
        matrices=tuple(found),
        group_size=scheme.group_size,
        experts_total=experts,
        experts_per_token=experts_per_token(reader) if experts else 0,
        buffer_bytes=_rotary_bytes(reader, dimensions),
    )


def _rotary_bytes(reader: ConfigReader, dimensions: Dimensions) -> int:
    """Tables of rotary positions: context times rotated width, 16 bit, one per kind of attention.

    Llama 3.1: 131,072 x 128 x 2 = 33.6 MB on every rank (observations kv017 and kv094).
    """
    if reader.text("model_type") in _NO_ROTARY:
        return 0
    if reader.present("kv_lora_rank"):
        return dimensions.context * reader.integer("qk_rope_head_dim", high=10**4) * 2
    nested = reader.mapping("rope_parameters", "rope_scaling")
    share = nested.number("partial_rotary_factor", low=0, high=1, default=1)
    share = reader.number("partial_rotary_factor", low=0, high=1, default=share)
    full, sliding = dimensions.full, dimensions.sliding
    width = reader.optional("rotary_dim", high=10**4) or int(full.head_dim * share)
    if LayerKind.SLIDING in dimensions.kinds and full != sliding:
        width += sliding.head_dim
    return dimensions.context * width * 2


def _grouped_attention(reader: ConfigReader, dimensions: Dimensions, shape: AttentionShape) -> list[Matrix]:
    hidden, heads = dimensions.hidden, dimensions.heads
    family = reader.text("model_type")
    gated = reader.flag("attn_output_gate", default=family.startswith(("qwen3_next", "qwen3_5")))
    wider = 2 * hidden if family == "zamba2" else hidden
    width = reader.optional("attention_hidden_size", low=1, high=10**6) or wider
    queries = heads * shape.head_dim * (2 if gated else 1)
    keys, values = shape.kv_heads * shape.head_dim, shape.kv_heads * shape.value_dim
    merged = "self_attn.qkv_proj"
    found = [
        linear("self_attn.q_proj", queries, width, Split.ROWS, units=heads, tensor=merged),
        linear("self_attn.k_proj", keys, width, Split.ROWS, units=shape.kv_heads, tensor=merged),
        linear("self_attn.v_proj", values, width, Split.ROWS, units=shape.kv_heads, tensor=merged),
        linear("self_attn.o_proj", hidden, heads * shape.value_dim, Split.COLUMNS),
    ]
    traits = family_of(reader)
    if reader.flag("attention_bias", default=traits.attention_bias):
        found.append(small("self_attn.bias", queries, split=Split.ROWS, units=heads))
        found.append(small("self_attn.bias", keys + values, split=Split.ROWS, units=shape.kv_heads))
        if traits.output_bias or family == "llama":
            found.append(small("self_attn.o_bias", hidden))
    if traits.sinks:
        found.append(small("self_attn.sinks", heads, split=Split.ROWS))
    if traits.output_gate:
        found.append(linear("self_attn.gate_proj", heads * shape.head_dim, hidden, Split.ROWS, units=heads))
    return found + _query_key_norm(reader, traits.query_key_norm, heads, shape)


def _query_key_norm(reader: ConfigReader, kind: QueryKeyNorm, heads: int, shape: AttentionShape) -> list[Matrix]:
    if reader.text("qk_norm_type") == "per_layer" or kind is QueryKeyNorm.HEADS:
        return [
            small("self_attn.q_norm", heads * shape.head_dim, split=Split.ROWS, units=heads),
            small("self_attn.k_norm", shape.kv_heads * shape.head_dim, split=Split.ROWS, units=shape.kv_heads),
        ]
    if kind is QueryKeyNorm.WHOLE:
        return [small("self_attn.qk_norm", (heads + shape.kv_heads) * shape.head_dim)]
    if kind is QueryKeyNorm.NONE:
        return []
    if kind is QueryKeyNorm.BY_KEY and not reader.flag("use_qk_norm", default=False):
        return []
    bias = 2 if kind is QueryKeyNorm.HEAD_WITH_BIAS else 1
    return [small("self_attn.qk_norm", 2 * bias * shape.head_dim)]


def _shared_attention(reader: ConfigReader, dimensions: Dimensions, shape: AttentionShape) -> list[Matrix]:
    """Attention without keys and values of its own."""
    kept = ("self_attn.q_proj", "self_attn.o_proj")
    own = [matrix for matrix in _grouped_attention(reader, dimensions, shape) if matrix.name in kept]
    return [*own, small("self_attn.q_norm", shape.head_dim)]


def _per_layer_inputs(reader: ConfigReader, dimensions: Dimensions) -> list[Matrix]:
    """Gemma 3n and 4: a second embedding with a row part for every layer, and its way into the layers."""
    width = reader.optional("hidden_size_per_layer_input", high=10**5) or 0
    if not width:
        return []
    layers, hidden = len(dimensions.kinds), dimensions.hidden
    vocabulary = reader.integer("vocab_size_per_layer_input", "vocab_size", high=10**7)
    return [
        Matrix(
            name="embed_tokens_per_layer", kind=Kind.EMBEDDING, rows=vocabulary, columns=layers * width,
            split=Split.ROWS,
        ),
        linear("per_layer_model_projection", layers * width, hidden, Split.ROWS),
        small("per_layer_projection_norm", width),
        replace(linear("per_layer_input_gate", width, hidden, Split.NONE), layers=layers),
        replace(linear("per_layer_projection", hidden, width, Split.NONE), layers=layers),
        small("post_per_layer_input_norm", hidden, layers=layers),
    ]  # fmt: skip


def _alternating_updates(reader: ConfigReader, dimensions: Dimensions) -> list[Matrix]:
    """Gemma 3n: several streams of hidden states, a router between them, and a low-rank way beside attention."""
    streams = reader.optional("altup_num_inputs", high=100) or 0
    if not streams:
        return []
    hidden, layers = dimensions.hidden, len(dimensions.kinds)
    rank = reader.integer("laurel_rank", high=10**5)
    routing = 2 * hidden + streams * hidden + streams * streams + streams**3
    return [
        small("altup", routing, layers=layers),
        replace(linear("laurel.linear_left", rank, hidden, Split.ROWS), layers=layers),
        replace(linear("laurel.linear_right", hidden, rank, Split.COLUMNS), layers=layers),
        small("laurel.post_laurel_norm", hidden, layers=layers),
        replace(linear("altup_projections", hidden, hidden, Split.ROWS), layers=2 * (streams - 1)),
    ]


def _latent_attention(reader: ConfigReader, dimensions: Dimensions) -> list[Matrix]:
    hidden, heads = dimensions.hidden, dimensions.heads
    nope = reader.integer("qk_nope_head_dim", high=10**4)
    rope = reader.integer("qk_rope_head_dim", high=10**4)
    value = reader.integer("v_head_dim", high=10**4)
    rank = reader.integer("kv_lora_rank", high=10**5)
    query_rank = reader.optional("q_lora_rank", high=10**5)
    found = [
        linear("self_attn.kv_a_proj_with_mqa", rank + rope, hidden, Split.NONE),
        linear("self_attn.kv_b_proj", heads * (nope + value), rank, Split.ROWS, units=heads, absorbed=True),
        linear("self_attn.o_proj", hidden, heads * value, Split.COLUMNS),
        small("self_attn.kv_a_layernorm", rank),
    ]
    if query_rank:
        found.append(linear("self_attn.q_a_proj", query_rank, hidden, Split.NONE))
        found.append(linear("self_attn.q_b_proj", heads * (nope + rope), query_rank, Split.ROWS, units=heads))
        found.append(small("self_attn.q_a_layernorm", query_rank))
    else:
        found.append(linear("self_attn.q_proj", heads * (nope + rope), hidden, Split.ROWS, units=heads))
    if reader.present("index_topk"):
        found += _indexer(reader, hidden, query_rank or hidden)
    return found


def _indexer(reader: ConfigReader, hidden: int, query_rank: int) -> list[Matrix]:
    """The selector of sparse latent attention (DeepSeek V3.2), whole on every rank."""
    heads = reader.integer("index_n_heads", high=10**4)
    dim = reader.integer("index_head_dim", high=10**4)
    return [
        linear("self_attn.indexer.wq_b", heads * dim, query_rank, Split.NONE),
        linear("self_attn.indexer.wk", dim, hidden, Split.NONE),
        small("self_attn.indexer.weights_proj", heads, hidden),
        small("self_attn.indexer.k_norm", 2 * dim),
    ]


def _norms(reader: ConfigReader, dimensions: Dimensions) -> list[Matrix]:
    """The norms of the hidden size: in each layer as many as the family has, one at the end."""
    family = family_of(reader)
    width = family.norm_width * dimensions.hidden
    norms = family.norms + (
        2 if any(reader.flag(key, default=False) for key in ("use_post_norm", "sandwich_norm")) else 0
    )
    return [small("norms", norms * width, layers=len(dimensions.kinds)), small("norm", width)]


def _tables(reader: ConfigReader, dimensions: Dimensions) -> list[Matrix]:
    """Input embedding and output head: one table when tied."""
    vocabulary = reader.integer("vocab_size", high=10**7)
    family = reader.text("model_type")
    traits = family_of(reader)
    tied = reader.flag("tie_word_embeddings", default=traits.tied)
    table = Matrix(
        name="embed_tokens", kind=Kind.EMBEDDING, rows=vocabulary, columns=dimensions.hidden, split=Split.ROWS
    )
    found = [table] if tied else [table, replace(table, name="lm_head")]
    if traits.head_bias:
        found.append(replace(table, name="lm_head.bias", columns=1))
    if family in ("opt", "gpt2"):
        positions = reader.integer("max_position_embeddings", "n_positions", high=10**7) + (2 if family == "opt" else 0)
        found.append(small("embed_positions", positions, dimensions.hidden))
    return found
