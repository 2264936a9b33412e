"""The kinds of a model's layers, in order, read from the many ways configurations write them down.

What counts is the cache a layer keeps: all tokens, a window of them, a fixed state, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError

MAX_LAYERS: Final = 2_000
MAX_HEADS: Final = 4_096
MAX_CONTEXT: Final = 10**9
# One full-attention layer in this many, where the configuration of a family does not say.
_SLIDING_PATTERNS: Final = {
    "gemma2": 2, "gemma3_text": 6, "gemma3": 6, "gemma4_text": 6, "gemma4": 6, "cohere2": 4, "gpt_oss": 2, "exaone4": 4,
}  # fmt: skip
# Families whose `sliding_window` is used only when the configuration says so.
_WINDOW_ON_DEMAND: Final = ("qwen",)


class LayerKind(Enum):
    """What a layer caches."""

    FULL = auto()
    SLIDING = auto()
    STATE = auto()  # linear attention, Mamba, short convolution
    FULL_AND_STATE = auto()  # both beside each other (Falcon-H1, the hybrid layers of Zamba2)
    STATELESS = auto()  # a feed-forward layer of its own (Nemotron-H)
    SHARED_FULL = auto()  # attention over the KV of an earlier layer (Gemma 3n and 4)
    SHARED_SLIDING = auto()

    @property
    def is_full(self) -> bool:
        """Whether it caches every token."""
        return self in FULL_KINDS

    @property
    def has_state(self) -> bool:
        """Whether it keeps a fixed state per request."""
        return self in STATE_KINDS


FULL_KINDS: Final = (LayerKind.FULL, LayerKind.FULL_AND_STATE)
STATE_KINDS: Final = (LayerKind.STATE, LayerKind.FULL_AND_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Heads of one kind of attention layer."""

    kv_heads: int
    head_dim: int
    value_dim: int


_NAMES: Final = {
    "full_attention": LayerKind.FULL,
    "attention": LayerKind.FULL,
    "indexed_attention": LayerKind.FULL,  # sparse latent attention: the index chooses what is read, not what is kept
    "chunked_attention": LayerKind.SLIDING,  # Llama 4: the chunk is the window
    "sliding_attention": LayerKind.SLIDING,
    "linear_attention": LayerKind.STATE,
    "mamba": LayerKind.STATE,
    "mamba2": LayerKind.STATE,
    "conv": LayerKind.STATE,
    "hybrid": LayerKind.FULL_AND_STATE,
    "mlp": LayerKind.STATELESS,
    "moe": LayerKind.STATELESS,
}
_SHARED: Final = {LayerKind.FULL: LayerKind.SHARED_FULL, LayerKind.SLIDING: LayerKind.SHARED_SLIDING}
_PATTERN_LETTERS: Final = {
    "M": LayerKind.STATE, "*": LayerKind.FULL, "-": LayerKind.STATELESS, "E": LayerKind.STATELESS,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Kinds in order, the window of the sliding ones, and which layers only share KV of an earlier one."""

    kinds: tuple[LayerKind, ...]
    window: int | None
    feed_forward_kinds: tuple[str, ...] | None = None  # Nemotron-H: the letter of each layer
    chunked: bool = False  # the window does not slide: a layer forgets at the end of each chunk (Llama 4)

    def count(self, *kinds: LayerKind) -> int:
        """Layers of these kinds."""
        return sum(kind in kinds for kind in self.kinds)


def read_layers(reader: ConfigReader) -> Layers:
    """The layers of a model. Raises `GeometryError` for kinds that are not known."""
    pattern = reader.values.get("hybrid_override_pattern")
    if pattern is not None:
        return _letters(pattern)
    named = reader.strings("layers_block_type") or reader.strings("layer_types")
    if named and not reader.present("num_hidden_layers") and len(named) <= MAX_LAYERS:
        layers = len(named)
    else:
        layers = reader.integer("num_hidden_layers", "n_layer", "num_layers", "n_layers", high=MAX_LAYERS)
    window = reader.optional("sliding_window", "sliding_window_size", high=MAX_CONTEXT) or None
    if "chunked_attention" in named:
        window = reader.integer("attention_chunk_size", high=MAX_CONTEXT)
        return replace(_read_named(reader, named, layers, window), chunked=True)
    if named:
        return _read_named(reader, named, layers, window)
    found = _periodic(reader, layers)
    if found is not None:
        return Layers(kinds=found, window=None)
    return _windowed(_sliding(reader, layers, window), window, reader)


def _read_named(reader: ConfigReader, named: tuple[str, ...], layers: int, window: int | None) -> Layers:
    """Layers that the configuration names one by one."""
    key = "layers_block_type" if reader.present("layers_block_type") else "layer_types"
    if len(named) < layers:
        message = f"{key} has {len(named)} entries for {layers} layers"
        raise GeometryError(message, field=key)
    kinds = _named(named[:layers], key)
    letters = _feed_forward_letters(named[:layers]) if reader.text("model_type") == "nemotron_h" else None
    return _windowed(kinds, window, reader, letters)


def _letters(pattern: object) -> Layers:
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_LAYERS:
        message = f"hybrid_override_pattern must be 1 to {MAX_LAYERS} letters"
        raise GeometryError(message, field="hybrid_override_pattern")
    letters = pattern.replace("|", "")
    odd = next((letter for letter in letters if letter not in _PATTERN_LETTERS), None)
    if odd is not None or not letters:
        message = f"hybrid_override_pattern: unknown layer type {odd!r}; supported: M, * (attention), - and E (MLP)"
        raise GeometryError(message, field="hybrid_override_pattern")
    kinds = tuple(_PATTERN_LETTERS[letter] for letter in letters)
    return Layers(kinds=kinds, window=None, feed_forward_kinds=tuple(letters))


def _feed_forward_letters(named: tuple[str, ...]) -> tuple[str, ...]:
    return tuple({"mlp": "-", "moe": "E"}.get(name, "*") for name in named)


def _named(named: tuple[str, ...], key: str) -> tuple[LayerKind, ...]:
    odd = next((name for name in named if name not in _NAMES), None)
    if odd is not None:
        message = f"{key}: unknown layer type {odd[:40]!r}; supported: {', '.join(sorted(_NAMES))}"
        raise GeometryError(message, field=key)
    return tuple(_NAMES[name] for name in named)


def _windowed(
    kinds: tuple[LayerKind, ...],
    window: int | None,
    reader: ConfigReader,
    letters: tuple[str, ...] | None = None,
) -> Layers:
    """Sliding layers without a window are full; layers that share the KV of an earlier layer keep none."""
    if window is None:
        kinds = tuple(LayerKind.FULL if kind is LayerKind.SLIDING else kind for kind in kinds)
    shared = reader.optional("num_kv_shared_layers", high=MAX_LAYERS) or 0
    if shared >= len(kinds):
        message = f"num_kv_shared_layers is {shared} of {len(kinds)} layers; the first must keep its own KV"
        raise GeometryError(message, field="num_kv_shared_layers")
    if shared:
        own = len(kinds) - shared
        kinds = (*kinds[:own], *(_SHARED.get(kind, LayerKind.STATELESS) for kind in kinds[own:]))
    return Layers(kinds=kinds, window=window if LayerKind.SLIDING in kinds else None, feed_forward_kinds=letters)


def _periodic(reader: ConfigReader, layers: int) -> tuple[LayerKind, ...] | None:
    """Hybrids that say where attention is by a period or by a list of layers."""
    if reader.present("attn_layer_indices") or reader.present("full_attn_idxs"):
        key = "attn_layer_indices" if reader.present("attn_layer_indices") else "full_attn_idxs"
        chosen = reader.integers(key)
        return tuple(LayerKind.FULL if i in chosen else LayerKind.STATE for i in range(layers))
    if reader.present("attn_layer_period"):
        period = reader.integer("attn_layer_period", high=MAX_LAYERS)
        offset = reader.integer("attn_layer_offset", low=0, high=MAX_LAYERS, default=0)
        return tuple(LayerKind.FULL if i % period == offset else LayerKind.STATE for i in range(layers))
    if reader.present("linear_num_value_heads"):
        interval = reader.integer("full_attention_interval", high=MAX_LAYERS, default=4)
        return tuple(LayerKind.FULL if (i + 1) % interval == 0 else LayerKind.STATE for i in range(layers))
    if reader.text("model_type") == "falcon_h1":
        return (LayerKind.FULL_AND_STATE,) * layers
    for key in ("mamba_d_state", "ssm_state_size", "mamba_num_heads", "conv_L_cache"):
        if reader.present(key):
            message = (
                f"{key} implies layers with a fixed state but not which ones; add layer_types, "
                "layers_block_type, hybrid_override_pattern or attn_layer_indices"
            )
            raise GeometryError(message, field=key)
    return None


def _sliding(reader: ConfigReader, layers: int, window: int | None) -> tuple[LayerKind, ...]:
    family = reader.text("model_type")
    full = (LayerKind.FULL,) * layers
    if window is None or not reader.flag("use_sliding_window", default=not family.startswith(_WINDOW_ON_DEMAND)):
        return full
    letters = reader.text("sliding_window_pattern", "_sliding_window_pattern")
    if letters:  # Exaone 4: "LLLG"
        kinds = [LayerKind.SLIDING if letters[i % len(letters)] == "L" else LayerKind.FULL for i in range(layers)]
        return (*kinds[:-1], LayerKind.FULL)
    pattern = reader.optional("sliding_window_pattern", "_sliding_window_pattern", low=1, high=MAX_LAYERS)
    pattern = pattern or _SLIDING_PATTERNS.get(family)
    if pattern:
        return tuple(LayerKind.FULL if (i + 1) % pattern == 0 else LayerKind.SLIDING for i in range(layers))
    if family.startswith(_WINDOW_ON_DEMAND):
        whole = min(layers, reader.integer("max_window_layers", low=0, high=MAX_LAYERS, default=layers))
        return (LayerKind.FULL,) * whole + (LayerKind.SLIDING,) * (layers - whole)
    return (LayerKind.SLIDING,) * layers


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
