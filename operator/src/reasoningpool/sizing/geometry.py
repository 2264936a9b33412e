"""Model geometry: what of a `config.json` decides KV bytes, weights and activations.

Built once from the configuration; everything else of the sizing works on these numbers. Layers are
sorted into three kinds: full attention (grouped-query or latent), sliding-window attention, and
linear attention with a fixed state per request (gated delta net).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reasoningpool.sizing.config_reader import ConfigReader
from reasoningpool.sizing.errors import GeometryError
from reasoningpool.sizing.parameters import count_parameters
from reasoningpool.sizing.weights import WeightCounts, WeightFormat, weight_format

_CONV_BYTES: Final = 2  # convolution state is kept in the model's 16-bit type
_INDEXER_BYTES_PER_TOKEN_AND_LAYER: Final = 132  # 128 fp8 values and a 4-byte scale (sparse latent attention)
_MAX_LAYERS: Final = 2_000
_MAX_HEADS: Final = 4_096
_MAX_CONTEXT: Final = 10**9
_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "model_max_length",
)
# One full-attention layer in this many, where the configuration of a family does not say.
_SLIDING_PATTERNS: Final = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGeometry:
    """Fixed state of one linear-attention layer (gated delta net)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    ssm_bytes: int

    def bytes_per_layer(self, tensor_parallel: int) -> int:
        """State bytes of one layer on one rank.

        `v_heads * Dk * Dv * ssm_bytes + (2 * k_heads * Dk + v_heads * Dv) * (conv - 1) * 2`, heads split over
        ranks. Qwen3-Next at TP 1: 1,097,728.
        """
        value_heads = max(1, self.value_heads // tensor_parallel)
        key_heads = max(1, self.key_heads // tensor_parallel)
        recurrent = value_heads * self.key_dim * self.value_dim * self.ssm_bytes
        channels = 2 * key_heads * self.key_dim + value_heads * self.value_dim
        return recurrent + channels * (self.conv_kernel - 1) * _CONV_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The numbers of a model that the sizing needs."""

    family: str
    hidden_size: int
    vocab_size: int
    num_attention_heads: int
    kv_heads: int
    head_dim: int
    full_layers: int
    sliding_layers: int
    sliding_window: int | None
    state_layers: int
    state: StateGeometry | None
    latent_dim: int | None  # latent attention: kv_lora_rank + rope dimension
    indexer_bytes: int  # per token and layer, sparse latent attention
    native_context_tokens: int
    intermediate_size: int  # widest feed-forward a token passes (experts chosen times their width)
    mtp_layers: int
    weights: WeightCounts
    weight_format: WeightFormat

    @classmethod
    def from_config(cls, config: Mapping[str, Any], quantization: str | None = None) -> Geometry:
        """Read a `config.json`. Raises `GeometryError` with the key that is missing or absurd."""
        reader = ConfigReader.of(config)
        layers = reader.integer("num_hidden_layers", "n_layer", "num_layers", "n_layers", high=_MAX_LAYERS)
        hidden = reader.integer("hidden_size", "n_embd", "d_model", high=10**6)
        heads = reader.integer("num_attention_heads", "n_head", "n_heads", high=_MAX_HEADS)
        kv_heads = _kv_heads(reader, heads)
        head_dim = _head_dim(reader, hidden, heads)
        kinds = _layer_kinds(reader, layers)
        latent = None
        if reader.present("kv_lora_rank"):
            rank = reader.integer("kv_lora_rank", high=10**5)
            latent = rank + reader.integer("qk_rope_head_dim", high=10**4)
        sparse = latent is not None and reader.present("index_topk")
        return cls(
            family=reader.text("model_type", default="unknown"),
            hidden_size=hidden,
            vocab_size=reader.integer("vocab_size", high=10**7),
            num_attention_heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            full_layers=kinds.full,
            sliding_layers=kinds.sliding,
            sliding_window=kinds.window,
            state_layers=kinds.linear,
            state=_state(reader) if kinds.linear else None,
            latent_dim=latent,
            indexer_bytes=_INDEXER_BYTES_PER_TOKEN_AND_LAYER if sparse else 0,
            native_context_tokens=_native_context(reader),
            intermediate_size=_widest_feed_forward(reader, hidden),
            mtp_layers=reader.optional("num_nextn_predict_layers", "mtp_num_hidden_layers", high=_MAX_LAYERS) or 0,
            weights=count_parameters(
                reader, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
                attention_layers=kinds.full + kinds.sliding, linear_layers=kinds.linear,
            ),
            weight_format=weight_format(quantization, reader),
        )  # fmt: skip

    @property
    def num_layers(self) -> int:
        """All layers."""
        return self.full_layers + self.sliding_layers + self.state_layers

    @property
    def is_hybrid(self) -> bool:
        """Whether requests hold a fixed state beside their paged KV (linear attention)."""
        return self.state_layers > 0

    @property
    def is_latent(self) -> bool:
        """Whether KV is one latent vector per token and layer (MLA)."""
        return self.latent_dim is not None

    @property
    def layer_weight_bytes(self) -> int:
        """Weights of the average layer over all GPUs: about what one MTP layer adds (`draft_weight_bytes`)."""
        tables = self.weights.embedding * 2
        return (self.weights.bytes_total(self.weight_format) - tables) // self.num_layers

    def kv_bytes_per_token_and_layer(self, dtype_bytes: int, *, tensor_parallel: int = 1) -> int:
        """KV bytes of one token in one attention layer on one GPU.

        Grouped-query `2 * max(1, kv_heads / tp) * head_dim * dtype_bytes`; latent
        `(kv_lora_rank + rope) * dtype_bytes` whole on every rank (sparse variants add the indexer's cache, and
        keep 656 bytes in fp8).
        """
        if self.latent_dim is not None:
            if self.indexer_bytes:
                return (656 if dtype_bytes == 1 else self.latent_dim * dtype_bytes) + self.indexer_bytes
            return self.latent_dim * dtype_bytes
        return 2 * max(1, self.kv_heads // tensor_parallel) * self.head_dim * dtype_bytes

    def kv_bytes_per_token(self, dtype_bytes: int, *, tensor_parallel: int = 1) -> int:
        """KV bytes a further token costs on one GPU: full-attention layers only.

        Qwen3-32B in fp8: 131,072 at TP 1, 65,536 at TP 2. DeepSeek-R1 in fp8: 35,136 at any TP.
        """
        return self.full_layers * self.kv_bytes_per_token_and_layer(dtype_bytes, tensor_parallel=tensor_parallel)


def valid_tensor_parallel_sizes(heads: int, up_to: int) -> tuple[int, ...]:
    """Tensor-parallel sizes that divide the attention heads. 40 heads, up to 6: (1, 2, 4, 5)."""
    return tuple(size for size in range(1, min(up_to, heads) + 1) if heads % size == 0)


@dataclass(frozen=True, slots=True)
class _LayerKinds:
    full: int
    sliding: int
    linear: int
    window: int | None


def _kv_heads(reader: ConfigReader, heads: int) -> int:
    default = 1 if reader.flag("multi_query", default=False) else heads
    kv_heads = reader.integer(
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", high=_MAX_HEADS, default=default
    )
    if kv_heads > heads or heads % kv_heads:
        message = f"num_key_value_heads is {kv_heads}, which does not divide num_attention_heads {heads}"
        raise GeometryError(message, field="num_key_value_heads")
    return kv_heads


def _head_dim(reader: ConfigReader, hidden: int, heads: int) -> int:
    if reader.present("global_head_dim"):
        message = "attention layers of two shapes (global_head_dim) are not sized yet; state engine.kvCacheMemory and tiers[].maxNumSeqs"  # noqa: E501
        raise GeometryError(message, field="global_head_dim")
    stated = reader.optional("head_dim", "attention_head_dim", low=1, high=_MAX_HEADS)
    if stated is not None:
        return stated
    if hidden % heads:
        message = f"head_dim is missing and hidden_size {hidden} is not a multiple of num_attention_heads {heads}; add head_dim"  # noqa: E501
        raise GeometryError(message, field="head_dim")
    return hidden // heads


def _layer_kinds(reader: ConfigReader, layers: int) -> _LayerKinds:
    for key in ("hybrid_override_pattern", "layers_block_type", "mamba_d_state", "ssm_state_size", "mamba_num_heads"):
        if reader.present(key):
            message = f"layers of the Mamba kind ({key}) are not sized yet; models with gated delta net layers are"
            raise GeometryError(message, field=key)
    window = reader.optional("sliding_window", high=_MAX_CONTEXT) or None
    named = reader.strings("layer_types")
    if named:
        if len(named) < layers:
            message = f"layer_types has {len(named)} entries for {layers} layers"
            raise GeometryError(message, field="layer_types")
        return _named_kinds(named[:layers], window)
    if reader.present("linear_num_value_heads"):
        interval = reader.integer("full_attention_interval", high=_MAX_LAYERS, default=4)
        full = layers // interval
        return _LayerKinds(full, 0, layers - full, None)
    sliding = _sliding_layers(reader, layers, window)
    if sliding == layers:  # every layer slides: counted as full, which is never too little
        sliding = 0
    return _LayerKinds(layers - sliding, sliding, 0, window if sliding else None)


def _named_kinds(named: tuple[str, ...], window: int | None) -> _LayerKinds:
    linear = sum(name == "linear_attention" for name in named)
    sliding = sum(name == "sliding_attention" for name in named)
    full = sum(name in ("full_attention", "chunked_attention", "attention") for name in named)
    if full + linear + sliding != len(named):
        odd = next(n for n in named if n not in ("linear_attention", "sliding_attention", "full_attention"))
        message = f"layer_types names {odd[:40]!r}; sized are full_attention, sliding_attention and linear_attention"
        raise GeometryError(message, field="layer_types")
    if window is None or sliding == len(named):
        return _LayerKinds(full + sliding, 0, linear, None)
    if linear and sliding:
        message = "layer_types mixes linear and sliding attention, which is not sized yet"
        raise GeometryError(message, field="layer_types")
    return _LayerKinds(full, sliding, linear, window if sliding else None)


def _sliding_layers(reader: ConfigReader, layers: int, window: int | None) -> int:
    family = reader.text("model_type")
    if window is None or not reader.flag("use_sliding_window", default=not family.startswith("qwen")):
        return 0
    default = _SLIDING_PATTERNS.get(family, layers + 1)
    pattern = reader.integer("sliding_window_pattern", "_sliding_window_pattern", high=_MAX_LAYERS, default=default)
    if pattern <= layers:
        return layers - layers // pattern
    if family.startswith("qwen"):
        return layers - min(layers, reader.integer("max_window_layers", low=0, high=_MAX_LAYERS, default=layers))
    return layers


def _state(reader: ConfigReader) -> StateGeometry:
    dtype = reader.text("mamba_ssm_dtype", default="auto")
    return StateGeometry(
        key_heads=reader.integer("linear_num_key_heads", high=_MAX_HEADS),
        value_heads=reader.integer("linear_num_value_heads", high=_MAX_HEADS),
        key_dim=reader.integer("linear_key_head_dim", high=_MAX_HEADS),
        value_dim=reader.integer("linear_value_head_dim", high=_MAX_HEADS),
        conv_kernel=reader.integer("linear_conv_kernel_dim", high=64, default=4),
        ssm_bytes=4 if dtype == "float32" else 2,
    )


def _native_context(reader: ConfigReader) -> int:
    """The longest sequence the checkpoint was made for, as vLLM derives it.

    YaRN stretches `original_max_position_embeddings` by its factor; the other scalings in use (llama3,
    longrope, mrope) are already part of `max_position_embeddings`.
    """
    stated = reader.integer(*_CONTEXT_KEYS, high=_MAX_CONTEXT)
    rope = reader.mapping("rope_scaling", "rope_parameters")
    kind = rope.text("rope_type", "type")
    factor = rope.number("factor", low=1e-3, high=1e6, default=1.0)
    if kind in ("yarn", "deepseek_yarn"):
        original = rope.optional("original_max_position_embeddings", low=1)
        return max(1, int(original * factor)) if original is not None else stated
    if kind in ("linear", "dynamic"):
        return max(1, int(stated * factor))
    return stated


def _widest_feed_forward(reader: ConfigReader, hidden: int) -> int:
    dense = reader.integer("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=4 * hidden)
    per_token = reader.optional("num_experts_per_tok", "num_experts_per_token", "moe_topk", high=10**5)
    if not per_token:
        return dense
    expert = reader.integer("moe_intermediate_size", "intermediate_size", default=dense)
    return max(dense, expert * per_token)
