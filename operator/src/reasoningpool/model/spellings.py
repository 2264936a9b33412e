"""One spelling for what families write in their own way, so that everything after this reads the same keys.

Each function takes the values of a `config.json` and gives the keys it adds or replaces. What a family's modules do
with its keys is read in vLLM's model classes (`model_executor/models/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from reasoningpool.model.errors import GeometryError

Values = Mapping[str, Any]
_LAYERS: Final = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def spelled(values: Values) -> dict[str, Any]:
    """The values with the usual keys beside a family's own."""
    found = dict(values)
    family = found.get("model_type")
    rewrite = _FAMILIES.get(family) if isinstance(family, str) else None
    if rewrite is not None:
        found |= rewrite(found)
    for key, usual in _SYNONYMS.items():
        if found.get(key) is not None and found.get(usual) is None:
            found[usual] = found[key]
    kinds = found.get("mlp_layer_types")
    if isinstance(kinds, (list, tuple)) and all(kind in ("dense", "sparse") for kind in kinds):
        found["mlp_only_layers"] = [i for i, kind in enumerate(kinds) if kind == "dense"]
        for key in ("first_k_dense_replace", "decoder_sparse_step", "interleave_moe_layer_step"):
            found.pop(key, None)
    return found


def _layers(values: Values) -> int:
    number = next((values[key] for key in _LAYERS if values.get(key) is not None), 0)
    return number if isinstance(number, int) and 0 <= number <= 10_000 else 0


def _nested(values: Values, key: str) -> Values:
    inner = values.get(key)
    if not isinstance(inner, Mapping):
        message = f"{values.get('model_type')} keeps its dimensions under {key}, which is missing; see its config.json"
        raise GeometryError(message, field=key)
    return inner


def _chatglm(values: Values) -> dict[str, Any]:
    found: dict[str, Any] = {"vocab_size": values.get("padded_vocab_size", values.get("vocab_size"))}
    if values.get("multi_query_attention"):
        found["num_key_value_heads"] = values.get("multi_query_group_num")
    found["head_dim"] = values.get("kv_channels")
    found["attention_bias"] = bool(values.get("add_qkv_bias") or values.get("add_bias_linear"))
    return found


def _dbrx(values: Values) -> dict[str, Any]:
    attention, experts = _nested(values, "attn_config"), _nested(values, "ffn_config")
    return {
        "hidden_size": values.get("d_model"),
        "num_attention_heads": values.get("n_heads"),
        "num_hidden_layers": values.get("n_layers"),
        "max_position_embeddings": values.get("max_seq_len"),
        "num_key_value_heads": attention.get("kv_n_heads"),
        "intermediate_size": experts.get("ffn_hidden_size"),
        "num_local_experts": experts.get("moe_num_experts"),
        "num_experts_per_tok": experts.get("moe_top_k"),
    }


def _llama4(values: Values) -> dict[str, Any]:
    """`intermediate_size` is that of an expert, routed or shared; dense layers have `intermediate_size_mlp`."""
    own = values.get("intermediate_size")
    found: dict[str, Any] = {
        "moe_intermediate_size": own,
        "n_shared_experts": 1,
        "shared_expert_intermediate_size": None,
    }
    found["intermediate_size"] = values.get("intermediate_size_mlp") or own
    rotary = values.get("no_rope_layers")
    layers = _layers(values)
    if not values.get("layer_types") and values.get("attention_chunk_size"):
        marks = rotary if isinstance(rotary, (list, tuple)) and rotary else [(i + 1) % 4 for i in range(layers)]
        found["layer_types"] = ["chunked_attention" if mark else "full_attention" for mark in marks]
    return found


def _listed_widths(values: Values) -> dict[str, Any]:
    """A width per layer, which all published configurations have equal."""
    widths = values.get("intermediate_size")
    if not isinstance(widths, (list, tuple)):
        return {}
    if len(set(widths)) != 1:
        message = "intermediate_size differs between layers; layers of one width are sized"
        raise GeometryError(message, field="intermediate_size")
    return {"intermediate_size": widths[0]}


def _mimo_v2(values: Values) -> dict[str, Any]:
    """Sliding layers have heads of their own."""
    found: dict[str, Any] = {}
    pattern = values.get("hybrid_layer_pattern")
    if isinstance(pattern, (list, tuple)):
        found["layer_types"] = ["sliding_attention" if mark else "full_attention" for mark in pattern]
    frequency = values.get("moe_layer_freq")
    if isinstance(frequency, (list, tuple)):
        found["mlp_only_layers"] = [i for i, mark in enumerate(frequency) if not mark]
    found["sliding_window"] = values.get("sliding_window_size") or values.get("sliding_window")
    return found


def _pangu(values: Values) -> dict[str, Any]:
    return {"attention_bias": bool(values.get("bias") or values.get("attention_bias"))}


_SYNONYMS: Final = {
    "multi_query_group_num": "num_key_value_heads",
    "num_attention_groups": "num_key_value_heads",
    "num_query_groups": "num_key_value_heads",
    "num_dense_layers": "first_k_dense_replace",
    "moe_layer_start_index": "first_k_dense_replace",
    "moe_num_shared_experts": "n_shared_experts",
    "moe_k": "num_experts_per_tok",
    "moe_top_k": "num_experts_per_tok",
    "expert_ffn_hidden_size": "moe_intermediate_size",
    "score_function": "scoring_func",
}
_FAMILIES: Final[dict[str, Callable[[Values], dict[str, Any]]]] = {
    "chatglm": _chatglm,
    "dbrx": _dbrx,
    "gemma3n_text": _listed_widths,
    "llama4_text": _llama4,
    "mimo_v2": _mimo_v2,
    "mimo_v2_flash": _mimo_v2,
    "PanguEmbedded": _pangu,
}
