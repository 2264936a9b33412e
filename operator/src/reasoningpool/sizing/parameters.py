"""Building the list of a model's weight matrices from its configuration, module by module as vLLM does.

MTP layers are left out. Mixers of linear attention are in `state_parameters`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reasoningpool.sizing.config_reader import ConfigReader
from reasoningpool.sizing.integers import round_up
from reasoningpool.sizing.layers import AttentionShape, LayerKind
from reasoningpool.sizing.matrices import Kind, Matrix, Split
from reasoningpool.sizing.quantization import Quantization, ignored_layers
from reasoningpool.sizing.state_parameters import state_matrices
from reasoningpool.sizing.weights import WeightCounts
from reasoningpool.sizing.zamba_parameters import zamba_matrices

_EXPERT_KEYS: Final = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_UNGATED: Final = frozenset(
    {"opt", "gpt2", "gpt_neox", "gpt_bigcode", "gptj", "falcon", "phi", "starcoder2", "nemotron", "nemotron_h", "mpt"}
)
_ONE_NORM: Final = frozenset({"nemotron_h", "cohere", "cohere2", "zamba2"})
_QK_NORMS: Final = ("qwen3", "gemma3", "gemma4", "exaone4", "lfm2")
_FOUR_NORMS: Final = ("gemma2", "gemma3", "gemma4")
_ROUTING_BIAS: Final = frozenset({"nemotron_h", "glm4_moe", "glm4_moe_lite"})
_NO_ROTARY: Final = frozenset({"opt", "gpt2", "gpt_bigcode", "nemotron_h", "jamba", "mpt"})
_OUTPUT_BIAS: Final = frozenset({"gpt_oss", "opt", "gpt2", "gpt_neox", "starcoder2", "phi"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What the geometry already read."""

    hidden: int
    heads: int
    kinds: tuple[LayerKind, ...]
    full: AttentionShape
    sliding: AttentionShape
    context: int  # tokens the rotary tables cover
    letters: tuple[str, ...] | None = None  # Nemotron-H: what each layer is


def count_parameters(reader: ConfigReader, dimensions: Dimensions, scheme: Quantization) -> WeightCounts:
    """All matrices of the model."""
    kinds = dimensions.kinds
    found: list[Matrix] = []
    full = [i for i, kind in enumerate(kinds) if kind.is_full]
    sliding = [i for i, kind in enumerate(kinds) if kind is LayerKind.SLIDING]
    state = [i for i, kind in enumerate(kinds) if kind.has_state]
    if reader.present("kv_lora_rank"):
        found += _placed(_latent_attention(reader, dimensions), full + sliding, scheme)
    else:
        found += _placed(_grouped_attention(reader, dimensions, dimensions.full), full, scheme)
        found += _placed(_grouped_attention(reader, dimensions, dimensions.sliding), sliding, scheme)
    found += _placed(state_matrices(reader, dimensions.hidden) if state else (), state, scheme)
    found += _feed_forward(reader, dimensions, scheme)
    if reader.text("model_type") == "zamba2":
        shared = [matrix for matrix in found if matrix.name.startswith(("self_attn.", "mlp."))]
        own = [matrix for matrix in found if matrix not in shared]
        found = own + zamba_matrices(reader, dimensions.hidden, shared, len(full))
    found += _norms(reader, dimensions)
    found += _tables(reader, dimensions)
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


def expert_count(reader: ConfigReader) -> int:
    """Routed experts per mixture layer, 0 for dense models."""
    return reader.optional(*_EXPERT_KEYS, high=10**5) or 0


def experts_per_token(reader: ConfigReader) -> int:
    """Routed experts each token passes."""
    keys = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k")
    return reader.integer(*keys, high=10**5, default=1)


def linear(name: str, rows: int, columns: int, split: Split, **more: int | str | bool) -> Matrix:
    """A linear layer's weight."""
    return Matrix(name=name, kind=Kind.LINEAR, rows=rows, columns=columns, split=split, **more)  # type: ignore[arg-type]


def small(
    name: str, rows: int, columns: int = 1, *, split: Split = Split.NONE, units: int = 0, layers: int = 1
) -> Matrix:
    """A weight that is never quantized."""
    return Matrix(name=name, kind=Kind.SMALL, rows=rows, columns=columns, split=split, units=units, layers=layers)


def _placed(matrices: Iterable[Matrix], layers: Sequence[int], scheme: Quantization) -> list[Matrix]:
    """The matrices in these layers; parted where the ignore list names some of the layers only."""
    found: list[Matrix] = []
    for matrix in matrices if layers else ():
        whole = 0 if matrix.kind is Kind.SMALL else ignored_layers(scheme, matrix.name, layers)
        if whole:
            found.append(replace(matrix, layers=whole, quantized=False))
        if whole < len(layers):
            found.append(replace(matrix, layers=len(layers) - whole))
    return found


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
    if reader.flag("attention_bias", default=family.startswith("qwen2") or family in _OUTPUT_BIAS):
        found.append(small("self_attn.bias", queries, split=Split.ROWS, units=heads))
        found.append(small("self_attn.bias", keys + values, split=Split.ROWS, units=shape.kv_heads))
        if family in _OUTPUT_BIAS or family == "llama":
            found.append(small("self_attn.o_bias", hidden))
    if family == "gpt_oss":
        found.append(small("self_attn.sinks", heads, split=Split.ROWS))
    if reader.text("qk_norm_type") == "per_layer":
        found.append(small("self_attn.qk_norm", (heads + shape.kv_heads) * shape.head_dim, split=Split.ROWS))
    elif family.startswith(_QK_NORMS) or reader.flag("use_qk_norm", default=False):
        found.append(small("self_attn.qk_norm", 2 * shape.head_dim))
    return found


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


def _feed_forward(reader: ConfigReader, dimensions: Dimensions, scheme: Quantization) -> list[Matrix]:
    layers = len(dimensions.kinds)
    hidden = dimensions.hidden
    dense, sparse = _feed_forward_layers(reader, dimensions)
    found: list[Matrix] = []
    if dense:
        found += _placed(_dense(reader, hidden, "mlp", _dense_width(reader, hidden)), dense, scheme)
    if sparse:
        found += _placed(_mixture(reader, hidden), sparse, scheme)
    if reader.text("model_type").startswith("gemma4") and sparse:  # the dense block beside the experts
        found += _placed(_dense(reader, hidden, "mlp", _dense_width(reader, hidden)), range(layers), scheme)
        found.append(small("mlp.router_scales", 4 * hidden + expert_count(reader), layers=layers))  # with three norms
    return found


def _dense_width(reader: ConfigReader, hidden: int) -> int:
    keys = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "shared_intermediate_size")
    width = reader.integer(*keys, default=4 * hidden)
    if reader.text("model_type") == "lfm2" and reader.flag("block_auto_adjust_ff_dim", default=True):
        factor = reader.number("block_ffn_dim_multiplier", low=0.01, high=100, default=1)
        return round_up(max(1, int(2 * width / 3 * factor)), reader.integer("block_multiple_of", default=256))
    return width


def _dense(reader: ConfigReader, hidden: int, name: str, inner: int) -> list[Matrix]:
    family = reader.text("model_type")
    up = linear(f"{name}.up_proj", inner, hidden, Split.ROWS, tensor=f"{name}.gate_up_proj")
    down = linear(f"{name}.down_proj", hidden, inner, Split.COLUMNS)
    if family in _UNGATED:
        biases = [small(f"{name}.bias", inner, split=Split.ROWS), small(f"{name}.bias", hidden)]
        return [up, down, *(biases if family in _OUTPUT_BIAS else ())]
    return [up, replace(up, name=f"{name}.gate_proj"), down]


def _feed_forward_layers(reader: ConfigReader, dimensions: Dimensions) -> tuple[list[int], list[int]]:
    """Layers with a dense feed-forward, and those with routed experts."""
    layers = len(dimensions.kinds)
    if dimensions.letters is not None:
        marks = dimensions.letters
        return [i for i in range(layers) if marks[i] == "-"], [i for i in range(layers) if marks[i] == "E"]
    if not expert_count(reader):
        return list(range(layers)), []
    sparse = [i for i in range(layers) if _is_mixture(reader, i)]
    chosen = frozenset(sparse)
    return [i for i in range(layers) if i not in chosen], sparse


def _is_mixture(reader: ConfigReader, layer: int) -> bool:
    if reader.present("expert_layer_period"):
        period = reader.integer("expert_layer_period", high=10**4)
        return layer % period == reader.integer("expert_layer_offset", low=0, high=10**4, default=0)
    if layer < (reader.optional("first_k_dense_replace", high=10**4) or 0):
        return False
    every = reader.optional("decoder_sparse_step", "interleave_moe_layer_step", high=10**4) or 1
    dense_only = reader.values.get("mlp_only_layers")
    if isinstance(dense_only, (list, tuple)) and layer in dense_only:
        return False
    return (layer + 1) % every == 0


def _mixture(reader: ConfigReader, hidden: int) -> list[Matrix]:
    family = reader.text("model_type")
    experts = expert_count(reader)
    inner = reader.integer("moe_intermediate_size", "intermediate_size", "n_inner")
    routed_hidden = reader.optional("moe_latent_size", low=1, high=10**6) or hidden
    name = "mlp.experts"
    up = Matrix(
        name=f"{name}.0.up_proj", kind=Kind.EXPERTS, rows=inner, columns=routed_hidden, split=Split.ROWS,
        copies=experts, tensor=f"{name}.w13",
    )  # fmt: skip
    down = replace(
        up, name=f"{name}.0.down_proj", rows=routed_hidden, columns=inner, split=Split.COLUMNS, tensor=f"{name}.w2"
    )
    found = [up, down] if family in _UNGATED else [up, replace(up, name=f"{name}.0.gate_proj"), down]
    found.append(small("mlp.gate", experts, hidden))
    if routed_hidden != hidden:
        found.append(linear("mlp.fc1_latent_proj", routed_hidden, hidden, Split.NONE))
        found.append(linear("mlp.fc2_latent_proj", hidden, routed_hidden, Split.NONE))
    if family == "gpt_oss":
        found.append(small("mlp.router.bias", experts))
        found.append(small("mlp.experts.w13_bias", 2 * inner, experts, split=Split.ROWS))
        found.append(small("mlp.experts.w2_bias", hidden, experts))
    if reader.text("scoring_func") == "sigmoid" or reader.flag("use_routing_bias", default=family in _ROUTING_BIAS):
        found.append(small("mlp.gate.bias", experts))
    return found + _shared_experts(reader, hidden, inner)


def _shared_experts(reader: ConfigReader, hidden: int, inner: int) -> list[Matrix]:
    width = reader.optional("shared_expert_intermediate_size", high=10**7) or 0
    if width:
        return [*_dense(reader, hidden, "mlp.shared_expert", width), small("mlp.shared_expert_gate", 1, hidden)]
    if reader.text("model_type") == "granitemoehybrid":
        width = reader.optional("shared_intermediate_size", high=10**7) or 0
    else:
        shared = reader.optional("n_shared_experts", "num_shared_experts", high=10**4) or 0
        width = shared * (reader.optional("moe_shared_expert_intermediate_size", low=1, high=10**7) or inner)
    return _dense(reader, hidden, "mlp.shared_experts", width) if width else []
