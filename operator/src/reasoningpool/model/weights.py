"""The bytes a model's weights take on one GPU.

Linear and expert weights are split over the tensor-parallel ranks, embeddings and the output head by
vocabulary; norms, routers, and the down-projections of latent attention are whole on every rank; KV
projections are repeated once there are more ranks than KV heads. Only linear and expert weights are
quantized; the rest stays 16 bit. MTP layers are not included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from reasoningpool.model.integers import ceil_div, round_up
from reasoningpool.model.matrices import Kind, Matrix, Split
from reasoningpool.model.quantization import EXPERTS_ONLY, Quantization, WeightFormat, quantized_bytes

__all__ = ["Quantization", "WeightCounts", "WeightFormat"]

_BYTES_16BIT: Final = 2
_VOCABULARY_PADDING: Final = 64  # vLLM pads vocabulary tables to a multiple of it
_MIB: Final = 1 << 20
# PyTorch's CUDA allocator takes tensors of 10 MiB and more from the driver in steps of 2 MiB. Qwen2.5-14B at TP 2 loses
# 3.5 MiB a layer to it, 0.16 GiB in all (observation kv004).
_LARGE_TENSOR: Final = 10 * _MIB
_LARGE_STEP: Final = 2 * _MIB
_HOPPER: Final = 9


@dataclass(frozen=True, kw_only=True)
class WeightCounts:
    """The matrices of a model and what follows from them."""

    matrices: tuple[Matrix, ...]
    group_size: int
    experts_total: int = 0  # number of routed experts, 0: dense
    experts_per_token: int = 0
    buffer_bytes: int = 0  # rotary tables, on every rank

    @cached_property
    def _known(self) -> dict[tuple[object, ...], int]:
        """Sums already made: the fixed point of the memory model asks for the same ones dozens of times."""
        return {}

    def _count(self, kinds: Iterable[Kind], *, whole: bool | None = None) -> int:
        chosen = frozenset(kinds)
        return sum(
            m.parameters
            for m in self.matrices
            if m.kind in chosen and (whole is None or whole == (m.split is Split.NONE))
        )

    @property
    def total(self) -> int:
        """All parameters of the model. Qwen3-8B: 8.191 billion."""
        return self._count(Kind)

    @property
    def linear(self) -> int:
        """Attention and dense feed-forward, split over ranks."""
        return self._count([Kind.LINEAR], whole=False)

    @property
    def replicated_linear(self) -> int:
        """Latent-attention down-projections, whole on every rank."""
        return self._count([Kind.LINEAR], whole=True)

    @property
    def experts(self) -> int:
        """Routed experts, split over ranks."""
        return self._count([Kind.EXPERTS])

    @property
    def embedding(self) -> int:
        """Input embedding and output head, split by vocabulary."""
        return self._count([Kind.EMBEDDING])

    @property
    def small(self) -> int:
        """Norms, biases, routers, convolutions: 16 bit."""
        return self._count([Kind.SMALL])

    def parameters_per_gpu(self, tensor_parallel: int, *, expert_parallel: bool = False) -> int:
        """Elements on one rank, vocabulary padding included. Qwen3-235B-A22B at TP 8: 29.480 billion."""
        found = 0
        for matrix in self.matrices:
            rows, columns, copies = _on_rank(matrix, tensor_parallel, expert_parallel=expert_parallel)
            found += rows * columns * copies * matrix.layers
        return found

    def bytes_total(self, fmt: WeightFormat) -> int:
        """Bytes of the checkpoint. Qwen3-32B: 32.762 B parameters, 65.52 GB in bf16, 34.33 GB in block fp8."""
        if (fmt,) in self._known:
            return self._known[fmt,]
        group = self.group_size
        self._known[fmt,] = round(
            sum(m.copies * m.layers * sum(_bytes(m, fmt, m.rows, m.columns, group)) for m in self.matrices)
        )
        return self._known[fmt,]

    def bytes_per_gpu(
        self,
        fmt: WeightFormat,
        tensor_parallel: int,
        *,
        expert_parallel: bool = False,
        compute_capability: tuple[int, int] | None = None,
    ) -> int:
        """Bytes on the fullest rank, padding of kernels and of the allocator included.

        `compute_capability` decides how MXFP4 experts are padded (unknown: as the Marlin kernels do, which is the
        most). gpt-oss-20b on one GPU: 13.45 GiB on Hopper, 13.7 GiB on Ampere; 12.8 GiB as a checkpoint.
        """
        known = (fmt, tensor_parallel, expert_parallel, compute_capability)
        if known in self._known:
            return self._known[known]
        tensors: dict[tuple[str, int], float] = {}
        loose = float(self.buffer_bytes)
        for matrix in self.matrices:
            rows, columns, copies = _on_rank(matrix, tensor_parallel, expert_parallel=expert_parallel)
            if fmt is WeightFormat.MXFP4 and matrix.kind is Kind.EXPERTS and matrix.quantized:
                rows, columns = _mxfp4_padded(matrix, rows, columns, compute_capability)
            values, scales = _bytes(matrix, fmt, rows, columns, self.group_size)
            loose += scales * copies * matrix.layers
            key = (matrix.tensor or matrix.name, matrix.layers)
            tensors[key] = tensors.get(key, 0.0) + values * copies
            if matrix.absorbed and matrix.quantized and _quantizes(fmt, matrix):
                loose += rows * columns * copies * _BYTES_16BIT * matrix.layers
        self._known[known] = round(loose + sum(_allocated(size) * layers for (_, layers), size in tensors.items()))
        return self._known[known]

    def bytes_read_per_step(self, fmt: WeightFormat, tensor_parallel: int, sequences: int) -> float:
        """Weight bytes one decode step reads on one rank.

        Of E experts with k chosen per token, N tokens touch `E * (1 - (1 - k/E)^N)`. The input embedding is
        looked up, not read whole: half of the vocabulary tables is left out.
        """
        touched = 1.0
        if self.experts_total:
            chosen = min(1.0, self.experts_per_token / self.experts_total)
            touched = 1 - (1 - chosen) ** sequences
        read = 0.0
        for matrix in self.matrices:
            rows, columns, copies = _on_rank(matrix, tensor_parallel, expert_parallel=False)
            share = {Kind.EMBEDDING: 0.5, Kind.EXPERTS: touched}.get(matrix.kind, 1.0)
            read += share * copies * matrix.layers * sum(_bytes(matrix, fmt, rows, columns, self.group_size))
        return read


def _quantizes(fmt: WeightFormat, matrix: Matrix) -> bool:
    """Whether the format applies to the matrix: some checkpoints (gpt-oss) quantize the routed experts only."""
    if not matrix.quantized or fmt is WeightFormat.BF16:
        return False
    return matrix.kind is Kind.EXPERTS or (matrix.kind is Kind.LINEAR and fmt not in EXPERTS_ONLY)


def _bytes(matrix: Matrix, fmt: WeightFormat, rows: int, columns: int, group: int) -> tuple[float, float]:
    """Bytes of the values and the scales of one copy in one layer, cut to `rows` by `columns`."""
    if _quantizes(fmt, matrix):
        return quantized_bytes(fmt, rows, columns, group)
    return float(rows * columns * _BYTES_16BIT), 0.0


def _on_rank(matrix: Matrix, ranks: int, *, expert_parallel: bool) -> tuple[int, int, int]:
    """Rows, columns and copies on the fullest rank."""
    if matrix.kind is Kind.EXPERTS and expert_parallel:
        return matrix.rows, matrix.columns, ceil_div(matrix.copies, ranks)
    rows, columns = matrix.shard(ranks)
    if matrix.kind is Kind.EMBEDDING and matrix.split is Split.ROWS:
        rows = round_up(matrix.rows, _VOCABULARY_PADDING)
        rows = ceil_div(rows, ranks)
    return rows, columns, matrix.copies


def _mxfp4_padded(matrix: Matrix, rows: int, columns: int, capability: tuple[int, int] | None) -> tuple[int, int]:
    """Shapes as the mixture kernels want them (`fused_moe/oracle/mxfp4.py`).

    Triton on Hopper pads the inputs to 256 values (128 packed bytes; observation kv044). Marlin and the Blackwell
    kernels pad the hidden size to 256 and the experts' inner size to 128 (observation kv041).
    """
    if capability is not None and capability[0] == _HOPPER:
        return rows, round_up(columns, 256)
    if matrix.split is Split.COLUMNS:  # down projection: hidden rows, inner columns
        return round_up(rows, 256), round_up(columns, 128)
    return round_up(rows, 128), round_up(columns, 256)


def _allocated(size: float) -> float:
    """What PyTorch counts as allocated for one tensor: a remainder of up to 1 MiB of the last step is not given on."""
    if size < _LARGE_TENSOR:
        return size
    whole = round_up(round(size), _LARGE_STEP)
    return float(whole) if whole - size <= _MIB else size
