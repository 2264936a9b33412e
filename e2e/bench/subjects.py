"""A row of observations with what is known of its model, its device and its engine's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench import known
from bench.observations import GIB, Observation, Version
from reasoningpool.model import Geometry
from reasoningpool.model.errors import SizingError
from reasoningpool.model.weights import WeightFormat
from reasoningpool.sizing import AcceleratorFacts, ConcurrencyPolicy, Effort, KVCacheDType, SizingInput
from reasoningpool.sizing.kv.blocks import KVLayout, kv_layout
from reasoningpool.sizing.kv.kv_elements import KVElements, PackedKVCacheDType

ASSUMED_VERSION: Final[Version] = (0, 11, 0)  # the middle of the versions that reports state
_DTYPES: Final[dict[str, KVElements]] = {
    "auto": KVCacheDType.AUTO, "bfloat16": KVCacheDType.BF16, "bf16": KVCacheDType.BF16, "float16": KVCacheDType.FP16,
    "fp16": KVCacheDType.FP16, "fp8": KVCacheDType.FP8, "fp8_e4m3": KVCacheDType.FP8,
    "fp8_e5m2": KVCacheDType.FP8_E5M2, **{str(packed): packed for packed in PackedKVCacheDType},
}  # fmt: skip
UNKNOWN_DEVICE: Final = AcceleratorFacts(
    product="unknown", memory_bytes=80 * GIB, compute_capability=(8, 0), memory_bandwidth_bytes_per_s=None
)
# NVFP4 checkpoints of models since this release keep attention in 16 bit: kv043 (Gemma-4-31B) loads 31.18 GiB, 19.6 GiB
# if all were quantized and 30.4 if the feed-forward part alone.
_ATTENTION_IN_16_BIT: Final[Version] = (0, 14, 0)
# Prefix caching of models with a fixed state, which costs a state block per request and group. kv102 (2026-08 or later)
# has it, kv115 (2026-05 or so) does not; the release between is a guess.
_HYBRID_PREFIX_CACHING: Final[Version] = (0, 23, 0)
_FOUR_BITS: Final = (WeightFormat.INT4, WeightFormat.BNB4, WeightFormat.NVFP4)
_EFFORT: Final = Effort(name="any", prompt_tokens=1024, thinking_tokens=0, answer_tokens=1024, share=1)


class MissingError(Exception):
    """An input that a prediction needs and the row does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The engine's settings of one prediction."""

    version: Version
    batched_tokens: int
    sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A row with what is known of its model and device."""

    row: Observation
    model: known.KnownModel
    geometry: Geometry
    device: AcceleratorFacts

    def inputs(self, settings: Settings, *, weight_bytes: int | None = None) -> SizingInput:
        """The row as the sizing takes it."""
        row = self.row
        return SizingInput(
            accelerator=self.device,
            tensor_parallel_size=row.tensor_parallel,
            geometry=self.geometry,
            weight_bytes=self._stated_weights() if weight_bytes is None else weight_bytes,
            kv_cache_dtype=KVCacheDType.AUTO,  # the memory model does not look at it
            memory_utilization_permille=round(1000 * (row.utilization or 0.9)),
            kv_cache_memory_bytes=None,
            efforts=(_EFFORT,),
            policy=ConcurrencyPolicy.WORST_CASE,
            preemption_risk_permille=0,
            draft_weight_bytes=self._draft_bytes(),
            vision_weight_bytes=self.geometry.tower_bytes,
            engine_version=settings.version,
            max_num_seqs=settings.sequences,
            max_num_batched_tokens=settings.batched_tokens,
            enforce_eager=row.enforce_eager,
        )

    def _stated_weights(self) -> int | None:
        """Weights less what is offloaded to the host, as the size of a checkpoint."""
        if not self.row.cpu_offload_gib:
            return None
        counts, fmt = self.geometry.weights, self.geometry.weight_format
        whole, per_gpu = counts.bytes_total(fmt), counts.bytes_per_gpu(fmt, self.row.tensor_parallel)
        return round(max(0.0, 1 - self.row.cpu_offload_gib * GIB / per_gpu) * whole)

    def _draft_bytes(self) -> int:
        """One layer for an MTP layer or an EAGLE head: what such a draft adds beside shared tables.

        EAGLE heads are 16 bit, and so are the MTP layers of 4-bit checkpoints: kv106 loads 4.7 GiB more than kv107,
        a layer of Qwen3.5-122B in 16 bit.
        """
        if not self.draft_layers:
            return 0
        geometry = self.geometry
        if "eagle" in (self.row.spec_decode or "") or geometry.weight_format in _FOUR_BITS:
            geometry = Geometry.from_config(self.model.config, "none")
        return geometry.layer_weight_bytes

    @property
    def kv_dtype(self) -> KVElements:
        """The KV cache's type. `auto` follows the checkpoint, and those modelopt writes in NVFP4 ask for FP8."""
        row = self.row
        if row.kv_cache_dtype == "auto" and self.geometry.weight_format is WeightFormat.NVFP4:
            return KVCacheDType.AUTO if "redhat" in (row.model or "").lower() else KVCacheDType.FP8
        return _DTYPES.get(row.kv_cache_dtype, KVCacheDType.AUTO)

    def refuse_unknown_draft(self) -> None:
        """Raises `MissingError` for a draft model that is not part of the model's own checkpoint family."""
        spec = self.row.spec_decode or ""
        if any(word in spec for word in ("draft", "dflash")):
            raise MissingError(f"geometry of the draft model ({spec})")

    @property
    def draft_layers(self) -> int:
        """KV layers of the draft model."""
        spec = self.row.spec_decode or ""
        return 1 if any(word in spec for word in ("mtp", "eagle", "dflash", "nextn")) else 0

    @property
    def speculative_tokens(self) -> int:
        """Draft tokens per step, 1 where the row does not say."""
        digits = [part for part in (self.row.spec_decode or "").replace(",", " ").split() if part.isdigit()]
        return int(digits[0]) if digits else 1


def subject(row: Observation) -> Subject:
    """What is known of the row. Raises `MissingError`."""
    if row.model is None:
        raise MissingError("model")
    model = known.find(row.model)
    if model is None:
        raise MissingError(f"geometry of {row.model}")
    stated = row.quantization
    if stated is None and "8" in (
        row.weights_dtype or ""
    ):  # a log's dtype is that of computation, unless it is fp8 or int8
        stated = row.weights_dtype
    quantization, is_known = known.quantization(row.model, stated, model)
    if not is_known:
        raise MissingError(f"bytes per weight of {row.quantization or row.model}")
    try:
        config = model.config
        if quantization == "nvfp4" and (model.since or (0, 0, 0)) >= _ATTENTION_IN_16_BIT:
            config = {**config, "quantization_config": {"ignore": ["re:.*_attn.*"]}}
        geometry = Geometry.from_config(config, quantization or "none")
    except SizingError as error:
        raise MissingError(f"geometry of {row.model}: {error}") from error
    weights = geometry.weights.bytes_per_gpu(geometry.weight_format, row.tensor_parallel)
    device = device_of(row, weights)
    return Subject(row=row, model=model, geometry=geometry, device=device or UNKNOWN_DEVICE)


def device_of(row: Observation, weight_bytes: int = 0) -> AcceleratorFacts | None:
    """The device by name and size; of two sizes of one product, those that can hold the weights and the printed KV."""
    on_gpu = max(0.0, weight_bytes - row.cpu_offload_gib * GIB)
    held = (row.observed_kv_bytes or 0) + on_gpu
    return known.device(row.gpu, row.nominal_gib, row.total_bytes, at_least_bytes=held / (row.utilization or 1))


def settings_of(found: Subject) -> tuple[Settings, tuple[Settings, ...], tuple[str, ...]]:
    """The likeliest settings, all that the row leaves open, and the names of what had to be assumed."""
    row, assumed = found.row, []
    since = found.model.since or (0, 0, 0)
    if row.version is None:
        assumed.append("version")
        versions = [max(since, v) for v in (ASSUMED_VERSION, (0, 8, 5), (0, 15, 0), (0, 20, 0), (0, 30, 0))]
    else:
        versions = [row.version]
        if not row.version_is_exact:
            assumed.append("version by date")
            versions = [max(since, row.version), max(since, row.newest_version or row.version)]
    every: list[Settings] = []
    if row.max_num_batched_tokens is None:
        assumed.append("max_num_batched_tokens")
    if row.max_num_seqs is None:
        assumed.append("max_num_seqs")
    for version in versions:
        server, offline, sequences = engine_defaults(version, found.device, row.max_model_len)
        tokens = [row.max_num_batched_tokens] if row.max_num_batched_tokens else [server, offline]
        for batched in tokens:
            limit = row.max_num_seqs or min(sequences, batched)
            every.append(Settings(version=version, batched_tokens=max(batched, limit), sequences=limit))
    return every[0], tuple(every), tuple(assumed)


def engine_defaults(version: Version, device: AcceleratorFacts, max_model_len: int | None) -> tuple[int, int, int]:
    """`max_num_batched_tokens` of the API server and of the offline class, and `max_num_seqs`, as the engine sets them.

    V0 (before 0.8) batched a whole context of up to 32,768 tokens, and 2,048 with chunked prefill beyond.
    """
    memory = device.memory_bytes or 0
    if version < (0, 8, 0):
        length = max_model_len or 8192
        whole = max(length, 2048) if length <= 32768 else 2048
        return whole, whole, 256
    if memory >= 160 * GIB and version >= (0, 15, 0):
        return 16_384, 16_384, 1024
    ampere = device.compute_capability == (8, 0)
    if memory >= 70 * GIB and not (ampere and version >= (0, 9, 0)):
        return 8192, 16_384, 1024
    return 2048, 8192, 256


def layout_of(found: Subject) -> KVLayout:
    """The KV groups and blocks of the row. Raises `MissingError` for layouts that are not modelled."""
    row = found.row
    if row.kv_cache_dtype not in _DTYPES:
        raise MissingError(f"KV layout of {row.kv_cache_dtype}")
    try:
        return kv_layout(
            found.geometry,
            found.device,
            tensor_parallel=row.tensor_parallel,
            dtype=found.kv_dtype,
            block_size=None,
            draft_layers=found.draft_layers,
            speculative_tokens=found.speculative_tokens if row.spec_decode else 0,
            prefix_caching=settings_of(found)[0].version >= _HYBRID_PREFIX_CACHING,
        )
    except SizingError as error:
        raise MissingError(f"KV layout: {error}") from error
