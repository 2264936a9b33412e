"""Parameter counts of a model and the bytes its weights take on one GPU.

Counted the way vLLM's modules hold them (MTP layers not included): linear and expert weights are split
over the tensor-parallel ranks, embeddings and the output head by vocabulary; norms, routers, biases and
the down-projections of latent attention are whole on every rank. Only linear and expert weights are
quantized; the rest stays 16 bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reasoningpool.sizing.config_reader import ConfigReader
from reasoningpool.sizing.errors import GeometryError

_BYTES_16BIT: Final = 2


class WeightFormat(StrEnum):
    """How linear and expert weights are stored."""

    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"
    INT4_EXPERTS = "int4_experts"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"


# Bytes per quantized parameter with its scales.
#   fp8    128 x 128 blocks with a 4-byte scale (DeepSeek, Qwen3-FP8 checkpoints)
#   int8   one byte, scale per channel (not counted)
#   int4   AWQ/GPTQ: groups of 128 with a 2-byte scale and a 4-bit zero point
#   int4_experts  routed experts only, groups of 32 with a 2-byte scale (Kimi-K2-Thinking)
#   mxfp4  routed experts only, groups of 32 with a 1-byte scale (OCP microscaling)
#   nvfp4  groups of 16 with a 1-byte scale
BYTES_PER_QUANTIZED: Final[dict[WeightFormat, float]] = {
    WeightFormat.BF16: 2.0,
    WeightFormat.FP8: 1 + 4 / 16384,
    WeightFormat.INT8: 1.0,
    WeightFormat.INT4: 0.5 + 2.5 / 128,
    WeightFormat.INT4_EXPERTS: 0.5 + 2 / 32,
    WeightFormat.MXFP4: 0.5 + 1 / 32,
    WeightFormat.NVFP4: 0.5 + 1 / 16,
}

_NAMES: Final[dict[str, WeightFormat]] = {
    "": WeightFormat.BF16,
    "none": WeightFormat.BF16,
    "bf16": WeightFormat.BF16,
    "bfloat16": WeightFormat.BF16,
    "fp16": WeightFormat.BF16,
    "float16": WeightFormat.BF16,
    "fp8": WeightFormat.FP8,
    "fp8_per_tensor": WeightFormat.FP8,
    "fp8_per_block": WeightFormat.FP8,
    "fbgemm_fp8": WeightFormat.FP8,
    "ptpc_fp8": WeightFormat.FP8,
    "modelopt": WeightFormat.FP8,
    "modelopt_fp4": WeightFormat.NVFP4,
    "nvfp4": WeightFormat.NVFP4,
    "mxfp4": WeightFormat.MXFP4,
    "gpt_oss_mxfp4": WeightFormat.MXFP4,
    "int8": WeightFormat.INT8,
    "w8a8": WeightFormat.INT8,
    "experts_int8": WeightFormat.INT8,
    "int4": WeightFormat.INT4,
    "int4_experts": WeightFormat.INT4_EXPERTS,
    "w4a16": WeightFormat.INT4,
    "awq": WeightFormat.INT4,
    "awq_marlin": WeightFormat.INT4,
    "gptq": WeightFormat.INT4,
    "gptq_marlin": WeightFormat.INT4,
    "auto_round": WeightFormat.INT4,
    "auto-round": WeightFormat.INT4,
    "bitsandbytes": WeightFormat.INT4,
}
_EXPERTS_ONLY: Final = frozenset({WeightFormat.MXFP4, WeightFormat.INT4_EXPERTS})
_BITS: Final = {4: WeightFormat.INT4, 8: WeightFormat.INT8, 16: WeightFormat.BF16}


def weight_format(quantization: str | None, config: ConfigReader) -> WeightFormat:
    """The weights' format: the named one, else what the checkpoint's `quantization_config` says."""
    if quantization is not None:
        found = _NAMES.get(quantization.strip().lower())
        if found is None:
            known = ", ".join(sorted(name for name in _NAMES if name))
            message = f"quantization {quantization[:40]!r} is not known; known are {known}"
            raise GeometryError(message, field="quantization")
        return found
    stored = config.mapping("quantization_config", "compression_config")
    method = stored.text("quant_method", "quantization").lower()
    algorithm = stored.text("quant_algo").lower()
    if algorithm:
        return WeightFormat.NVFP4 if "fp4" in algorithm else WeightFormat.FP8
    if method in ("compressed-tensors", "compressed_tensors", "quark"):
        return _compressed_tensors(stored)
    if method in ("awq", "gptq", "auto-round", "auto_round"):
        bits = stored.optional("bits", "w_bit", high=32)
        return _BITS.get(bits if bits is not None else 4, WeightFormat.BF16)
    if stored.flag("load_in_8bit", default=False):
        return WeightFormat.INT8
    return _NAMES.get(method, WeightFormat.BF16)  # an unknown method is taken as unquantized: the safe side


def _compressed_tensors(stored: ConfigReader) -> WeightFormat:
    groups = stored.mapping("config_groups")
    for name in groups.values:
        weights = groups.mapping(name).mapping("weights")
        bits = weights.optional("num_bits", high=32)
        if bits is None:
            continue
        if weights.text("type") == "float":
            return WeightFormat.NVFP4 if bits == 4 else WeightFormat.FP8
        return _BITS.get(bits, WeightFormat.BF16)
    return WeightFormat.BF16


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCounts:
    """Parameters by how they are stored and split."""

    linear: int  # attention and dense feed-forward, split over ranks
    replicated_linear: int  # latent-attention down-projections, whole on every rank
    experts: int  # routed experts, split over ranks
    embedding: int  # input embedding and output head, split by vocabulary
    small: int  # norms, biases, routers, convolutions: whole on every rank, 16 bit
    experts_total: int = 0  # number of routed experts, 0: dense
    experts_per_token: int = 0

    @property
    def total(self) -> int:
        """All parameters of the model."""
        return self.linear + self.replicated_linear + self.experts + self.embedding + self.small

    def bytes_total(self, fmt: WeightFormat) -> int:
        """Bytes of the whole model. Qwen3-32B: 32.762 B parameters, 65.52 GB in bf16, 34.33 GB in fp8."""
        dense, expert = _rates(fmt)
        quantized = (self.linear + self.replicated_linear) * dense + self.experts * expert
        return round(quantized + (self.embedding + self.small) * _BYTES_16BIT)

    def bytes_per_gpu(self, fmt: WeightFormat, tensor_parallel: int) -> int:
        """Bytes on one rank: split parts divided, whole parts whole."""
        dense, expert = _rates(fmt)
        split = self.linear * dense + self.experts * expert + self.embedding * _BYTES_16BIT
        whole = self.replicated_linear * dense + self.small * _BYTES_16BIT
        return round(split / tensor_parallel + whole)

    def bytes_read_per_step(self, fmt: WeightFormat, tensor_parallel: int, sequences: int) -> float:
        """Weight bytes one decode step reads on one rank.

        Of E experts with k chosen per token, N tokens touch `E * (1 - (1 - k/E)^N)`. The input embedding is
        looked up, not read whole: half of the vocabulary tables is left out.
        """
        dense, expert = _rates(fmt)
        touched = 1.0
        if self.experts_total:
            chosen = min(1.0, self.experts_per_token / self.experts_total)
            touched = 1 - (1 - chosen) ** sequences
        split = self.linear * dense + self.experts * expert * touched + self.embedding * _BYTES_16BIT / 2
        whole = self.replicated_linear * dense + self.small * _BYTES_16BIT
        return split / tensor_parallel + whole


def _rates(fmt: WeightFormat) -> tuple[float, float]:
    """Bytes per dense and per expert parameter: some checkpoints (gpt-oss) quantize the routed experts only."""
    expert = BYTES_PER_QUANTIZED[fmt]
    return (BYTES_PER_QUANTIZED[WeightFormat.BF16] if fmt in _EXPERTS_ONLY else expert), expert
