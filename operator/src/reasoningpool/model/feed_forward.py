"""Weight matrices of feed-forward layers: dense, routed experts and the shared expert beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.families import family_of
from reasoningpool.model.integers import round_up
from reasoningpool.model.layers import Dimensions
from reasoningpool.model.matrices import Kind, Matrix, Split, linear, placed, small
from reasoningpool.model.quantization import Quantization

_EXPERT_KEYS: Final = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_UNGATED: Final = frozenset(
    {
        "opt",
        "gpt2",
        "gpt_neox",
        "gpt_bigcode",
        "gptj",
        "falcon",
        "phi",
        "starcoder2",
        "nemotron",
        "nemotron_h",
        "mpt",
        "apertus",
    }
)
# Their configurations leave the width out, or null, for the usual one.
_USUAL_WIDTH: Final = frozenset(
    {"gpt2", "gptj", "gpt_neo", "gpt_bigcode", "codegen", "bloom", "mpt", "falcon", "RefinedWeb", "RefinedWebModel"}
)


def expert_count(reader: ConfigReader) -> int:
    """Routed experts per mixture layer, 0 for dense models."""
    return reader.optional(*_EXPERT_KEYS, high=10**5) or 0


def experts_per_token(reader: ConfigReader) -> int:
    """Routed experts each token passes."""
    keys = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k")
    return reader.integer(*keys, high=10**5, default=1)


def feed_forward(reader: ConfigReader, dimensions: Dimensions, scheme: Quantization) -> list[Matrix]:
    """All layers' feed-forward matrices."""
    layers = len(dimensions.kinds)
    hidden = dimensions.hidden
    dense, sparse = _feed_forward_layers(reader, dimensions)
    found: list[Matrix] = []
    if dense:
        found += placed(_dense(reader, hidden, "mlp", _dense_width(reader, hidden)), dense, scheme)
    if sparse:
        found += placed(_mixture(reader, hidden), sparse, scheme)
    if reader.text("model_type").startswith("gemma4") and sparse:  # the dense block beside the experts
        found += placed(_dense(reader, hidden, "mlp", _dense_width(reader, hidden)), range(layers), scheme)
        found.append(small("mlp.router_scales", 4 * hidden + expert_count(reader), layers=layers))  # with three norms
    return found


def _dense_width(reader: ConfigReader, hidden: int) -> int:
    keys = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "shared_intermediate_size")
    # Elsewhere a width that is not stated is a key that got lost, not four times the hidden size.
    usual = 4 * hidden if reader.text("model_type") in _USUAL_WIDTH else None
    width = reader.integer(*keys, default=usual)
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
        scalars = family_of(reader).activation_scalars
        learned = [small(f"{name}.act_fn", scalars)] if scalars else []
        return [up, down, *learned, *(biases if family_of(reader).feed_forward_bias else ())]
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
    if reader.text("scoring_func") == "sigmoid" or reader.flag(
        "use_routing_bias", default=family_of(reader).router_bias
    ):
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
