"""Building the list of a model's weight matrices from its configuration, module by module as vLLM does.

MTP layers are left out. Mixers of linear attention are in `state_parameters`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.feed_forward import FULL_BIAS, expert_count, experts_per_token, feed_forward
from reasoningpool.model.layers import AttentionShape, Dimensions, LayerKind
from reasoningpool.model.matrices import Kind, Matrix, Split, linear, placed, small
from reasoningpool.model.quantization import Quantization
from reasoningpool.model.state_parameters import state_matrices
from reasoningpool.model.weights import WeightCounts
from reasoningpool.model.zamba_parameters import zamba_matrices

_ONE_NORM: Final = frozenset({"nemotron_h", "cohere", "cohere2", "zamba2"})
_QK_NORMS: Final = ("qwen3", "gemma3", "gemma4", "exaone4", "lfm2")
_FOUR_NORMS: Final = ("gemma2", "gemma3", "gemma4")
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
    if reader.flag("attention_bias", default=family.startswith("qwen2") or family in FULL_BIAS):
        found.append(small("self_attn.bias", queries, split=Split.ROWS, units=heads))
        found.append(small("self_attn.bias", keys + values, split=Split.ROWS, units=shape.kv_heads))
        if family in FULL_BIAS or family == "llama":
            found.append(small("self_attn.o_bias", hidden))
    if family == "gpt_oss":
        found.append(small("self_attn.sinks", heads, split=Split.ROWS))
    if reader.text("qk_norm_type") == "per_layer":
        found.append(small("self_attn.qk_norm", (heads + shape.kv_heads) * shape.head_dim, split=Split.ROWS))
    elif family.startswith(_QK_NORMS) or reader.flag("use_qk_norm", default=False):
        found.append(small("self_attn.qk_norm", 2 * shape.head_dim))
    return found


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
    """Two norms a layer (one where a layer is a mixer or a feed-forward alone, four in Gemma), one at the end."""
    family = reader.text("model_type")
    each = 4 if family.startswith(_FOUR_NORMS) else 1 if family in _ONE_NORM else 2
    hidden = dimensions.hidden
    return [small("norms", each * hidden, layers=len(dimensions.kinds)), small("norm", hidden)]


def _tables(reader: ConfigReader, dimensions: Dimensions) -> list[Matrix]:
    """Input embedding and output head: one table when tied."""
    vocabulary = reader.integer("vocab_size", high=10**7)
    family = reader.text("model_type")
    tied = reader.flag("tie_word_embeddings", default=family.startswith(("gemma", "cohere")) or family == "opt")
    table = Matrix(
        name="embed_tokens", kind=Kind.EMBEDDING, rows=vocabulary, columns=dimensions.hidden, split=Split.ROWS
    )
    found = [table] if tied else [table, replace(table, name="lm_head")]
    if family in ("opt", "gpt2"):
        positions = reader.integer("max_position_embeddings", "n_positions", high=10**7) + (2 if family == "opt" else 0)
        found.append(small("embed_positions", positions, dimensions.hidden))
    return found
