"""Model geometry: what of a `config.json` decides KV bytes, weights and activations.

Built once from the configuration; everything else of the sizing works on these numbers. Layers are
sorted by what they cache: every token (grouped-query or latent attention), a window of them, or a fixed
state per request (gated delta net, Mamba, short convolution).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError
from reasoningpool.model.known_keys import not_known, uses
from reasoningpool.model.layers import (
    FULL_KINDS,
    MAX_CONTEXT,
    MAX_HEADS,
    MAX_LAYERS,
    STATE_KINDS,
    AttentionShape,
    Dimensions,
    LayerKind,
    read_layers,
)
from reasoningpool.model.parameters import count_parameters
from reasoningpool.model.quantization import Quantization, read_quantization
from reasoningpool.model.state import StateGeometry, read_state
from reasoningpool.model.towers import Modality, image_peak_bytes, image_tokens, tower_bytes
from reasoningpool.model.weights import WeightCounts, WeightFormat

INDEXER_BYTES: Final = 132  # per token and layer: 128 fp8 values and a 4-byte scale (sparse latent attention)
# Families that vLLM 0.32 has an MTP module for.
MTP_FAMILIES: Final = frozenset(
    {"deepseek_v3", "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "pangu_ultra_moe", "kimi_k3", "mimo", "mimo_v2"}
    | {
        "mimo_v2_flash",
        "glm4_moe",
        "glm4_moe_lite",
        "glm4v_moe",
        "ernie4_5_moe",
        "nemotron_h",
        "exaone_moe",
        "exaone4_5",
    }
    | {"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp", "longcat_flash"}
    | {"bailing_hybrid", "minimax_m3", "step3p5", "hy_v3", "hy_v4", "inkling", "glm5_next", "dots3_note"}
)
_SPARSE_FP8_BYTES: Final = 656  # vLLM's fp8_ds_mla: 512 fp8 values, 4 scales, 64 16-bit rotary values
_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "model_max_length",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The numbers of a model that the sizing needs."""

    family: str
    hidden_size: int
    vocab_size: int
    num_attention_heads: int
    kv_heads: int  # of full-attention layers
    head_dim: int
    value_dim: int
    layer_kinds: tuple[LayerKind, ...]
    sliding: AttentionShape  # heads of sliding-window layers
    sliding_window: int | None
    chunked: bool  # the window is a chunk that does not slide
    state: StateGeometry | None
    latent_dim: int | None  # latent attention: kv_lora_rank + rope dimension
    indexer_bytes: int  # per token and layer, sparse latent attention
    native_context_tokens: int
    intermediate_size: int  # widest feed-forward a token passes (experts chosen times their width)
    mtp_layers: int | None  # layers for multi-token prediction, `None` where the configuration does not say
    weights: WeightCounts
    quantization: Quantization
    towers: tuple[tuple[Modality, int], ...] = ()  # bytes of the encoders beside the language model, over all GPUs
    unknown: str | None = None  # what of the configuration there is no known use of, in words
    image_tokens: int = 0  # of the largest image
    image_peak_bytes: int = 0  # the tower's work space for one image token

    @classmethod
    def from_config(cls, config: Mapping[str, Any], quantization: str | None = None) -> Geometry:
        """Read a `config.json`. Raises `GeometryError` with the key that is missing or absurd.

        A configuration with something of unknown use is read as far as it goes and says so in `unknown`; no figure of
        it may be relied on.
        """
        reader = ConfigReader.of(config)
        unknown = not_known(reader.values)
        try:
            return cls._read(config, reader, quantization, unknown)
        except GeometryError as error:
            if not unknown:
                raise
            message = f"{uses(reader.values, unknown)}, and it cannot be read as others are: {error}"
            raise GeometryError(message, field=error.field) from error

    @classmethod
    def _read(
        cls, config: Mapping[str, Any], reader: ConfigReader, quantization: str | None, unknown: tuple[str, ...]
    ) -> Geometry:
        reader.check_dtype()
        layers = read_layers(reader)
        hidden = reader.integer("hidden_size", "n_embd", "d_model", high=10**6)
        heads = reader.integer("num_attention_heads", "n_head", "n_heads", high=MAX_HEADS)
        shape = _attention(reader, hidden, heads)
        full = _global_attention(reader, heads, shape)
        latent = None
        if reader.present("kv_lora_rank"):
            rank = reader.integer("kv_lora_rank", high=10**5)
            latent = rank + reader.integer("qk_rope_head_dim", high=10**4)
        sparse = latent is not None and reader.present("index_topk")
        scheme = read_quantization(quantization, reader)
        state = read_state(reader, hidden) if any(kind.has_state for kind in layers.kinds) else None
        context = _native_context(reader)
        dimensions = Dimensions(
            hidden=hidden, heads=heads, kinds=layers.kinds, full=full, sliding=shape, context=context,
            letters=layers.feed_forward_kinds,
        )  # fmt: skip
        if not any(kind.is_full or kind is LayerKind.SLIDING for kind in layers.kinds):
            message = "no layer keeps KV; set engine.kvCacheMemory and tiers[].maxNumSeqs"
            raise GeometryError(message, field=_layers_key(reader))
        return cls(
            family=reader.text("model_type", default="unknown"),
            hidden_size=hidden,
            vocab_size=reader.integer("vocab_size", high=10**7),
            num_attention_heads=heads,
            kv_heads=full.kv_heads,
            head_dim=full.head_dim,
            value_dim=full.value_dim,
            layer_kinds=layers.kinds,
            sliding=shape,
            sliding_window=layers.window,
            chunked=layers.chunked,
            state=state,
            latent_dim=latent,
            indexer_bytes=INDEXER_BYTES if sparse else 0,
            native_context_tokens=context,
            intermediate_size=_widest_feed_forward(reader, hidden),
            mtp_layers=reader.optional("num_nextn_predict_layers", "mtp_num_hidden_layers", high=MAX_LAYERS),
            weights=count_parameters(reader, dimensions, scheme),
            quantization=scheme,
            unknown=uses(reader.values, unknown) if unknown else None,
            towers=tuple(tower_bytes(config, hidden).items()),
            image_tokens=image_tokens(config),
            image_peak_bytes=image_peak_bytes(config),
        )

    @property
    def tower_bytes(self) -> int:
        """Weights of all towers, 16 bit, over all GPUs of a replica."""
        return sum(size for _, size in self.towers)

    @property
    def has_mtp(self) -> bool:
        """Whether vLLM finds layers for multi-token prediction (`SpeculativeConfig.hf_config_override`).

        A family has them or not; a configuration that says none takes them away.
        """
        return self.family in MTP_FAMILIES and self.mtp_layers != 0

    @property
    def full(self) -> AttentionShape:
        """Heads of full-attention layers."""
        return AttentionShape(kv_heads=self.kv_heads, head_dim=self.head_dim, value_dim=self.value_dim)

    @property
    def weight_format(self) -> WeightFormat:
        """How linear and expert weights are stored."""
        return self.quantization.format

    @property
    def num_layers(self) -> int:
        """All layers."""
        return len(self.layer_kinds)

    @property
    def full_layers(self) -> int:
        """Layers that cache every token."""
        return sum(map(self.layer_kinds.count, FULL_KINDS))

    @property
    def sliding_layers(self) -> int:
        """Layers that cache a window of tokens."""
        return self.layer_kinds.count(LayerKind.SLIDING)

    @property
    def state_layers(self) -> int:
        """Layers with a fixed state per request."""
        return sum(map(self.layer_kinds.count, STATE_KINDS))

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
            sparse_fp8 = self.indexer_bytes and dtype_bytes == 1
            return (_SPARSE_FP8_BYTES if sparse_fp8 else self.latent_dim * dtype_bytes) + self.indexer_bytes
        return max(1, self.kv_heads // tensor_parallel) * (self.head_dim + self.value_dim) * dtype_bytes

    def kv_bytes_per_token(self, dtype_bytes: int, *, tensor_parallel: int = 1) -> int:
        """KV bytes a further token costs on one GPU: full-attention layers only.

        Qwen3-32B in fp8: 131,072 at TP 1, 65,536 at TP 2. DeepSeek-R1 in fp8: 35,136 at any TP.
        """
        return self.full_layers * self.kv_bytes_per_token_and_layer(dtype_bytes, tensor_parallel=tensor_parallel)


def valid_tensor_parallel_sizes(heads: int, up_to: int) -> tuple[int, ...]:
    """Tensor-parallel sizes that divide the attention heads. 40 heads, up to 6: (1, 2, 4, 5)."""
    return tuple(size for size in range(1, min(up_to, heads) + 1) if heads % size == 0)


def _layers_key(reader: ConfigReader) -> str:
    keys = ("hybrid_override_pattern", "layers_block_type", "layer_types", "attn_layer_indices", "full_attn_idxs",
            "full_attention_interval", "attn_layer_period")  # fmt: skip
    return next((key for key in keys if reader.present(key)), "num_hidden_layers")


def _attention(reader: ConfigReader, hidden: int, heads: int) -> AttentionShape:
    """KV heads and head sizes of the model's attention layers (of the sliding ones where the two kinds differ)."""
    default = 1 if reader.flag("multi_query", default=False) else heads
    keys = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
    kv_heads = reader.integer(*keys, high=MAX_HEADS, default=default)
    if reader.text("model_type") == "falcon" and not reader.flag("new_decoder_architecture", default=False):
        kv_heads = default  # the number of KV heads counts for the newer layout alone
    _check_kv_heads(kv_heads, heads, "num_key_value_heads")
    stated = reader.optional("head_dim", "attention_head_dim", low=1, high=MAX_HEADS)
    if stated is None and reader.present("kv_lora_rank"):  # the latent vector is what is kept, not heads
        stated = reader.integer("qk_nope_head_dim", high=10**4) + reader.integer("qk_rope_head_dim", high=10**4)
    if stated is None:
        width = reader.optional("attention_hidden_size", low=1, high=10**6)
        if width is None:
            width = 2 * hidden if reader.text("model_type") == "zamba2" else hidden
        if width % heads:
            message = (
                f"head_dim is missing and hidden_size {hidden} is not a multiple of num_attention_heads {heads}; "
                "add head_dim"
            )
            raise GeometryError(message, field="head_dim")
        stated = width // heads
    value = stated
    if not reader.present("kv_lora_rank"):
        value = reader.optional("v_head_dim", low=1, high=MAX_HEADS) or stated
    return AttentionShape(kv_heads=kv_heads, head_dim=stated, value_dim=value)


def _global_attention(reader: ConfigReader, heads: int, sliding: AttentionShape) -> AttentionShape:
    """Full-attention layers of Gemma 4 have heads of their own."""
    dim = reader.optional("global_head_dim", low=1, high=MAX_HEADS)
    kv_heads = reader.optional("num_global_key_value_heads", low=1, high=MAX_HEADS) or sliding.kv_heads
    _check_kv_heads(kv_heads, heads, "num_global_key_value_heads")
    if dim is None:
        return replace(sliding, kv_heads=kv_heads)
    return AttentionShape(kv_heads=kv_heads, head_dim=dim, value_dim=dim)


def _check_kv_heads(kv_heads: int, heads: int, key: str) -> None:
    if kv_heads > heads or heads % kv_heads:
        message = f"{key} is {kv_heads}, which does not divide num_attention_heads {heads}"
        raise GeometryError(message, field=key)


def _native_context(reader: ConfigReader) -> int:
    """The longest sequence the checkpoint was made for, as vLLM derives it.

    YaRN stretches `original_max_position_embeddings` by its factor; the other scalings in use (llama3,
    longrope, mrope) are already part of `max_position_embeddings`.
    """
    stated = reader.integer(*_CONTEXT_KEYS, high=MAX_CONTEXT)
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
    per_token = reader.optional("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", high=10**5)
    if not per_token:
        return dense
    expert = reader.integer("moe_intermediate_size", "intermediate_size", default=dense)
    return max(dense, expert * per_token)
