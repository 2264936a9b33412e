"""Whether a quantized model's matrices can be cut for a number of ranks: scale blocks and groups must stay whole.

Rules of `validate_fp8_block_shape` and `validate_fp8_block_shape_moe` (`quantization/utils/fp8_utils.py`), and of the
AWQ, GPTQ and compressed-tensors methods, which refuse shards that cut a group.
"""

from __future__ import annotations

from typing import Final

from reasoningpool.model.errors import SizingError
from reasoningpool.model.geometry import Geometry
from reasoningpool.model.integers import round_up
from reasoningpool.model.matrices import Kind, Matrix, Split
from reasoningpool.model.quantization import EXPERTS_ONLY, FP8_BLOCK_SIZE, WeightFormat

_INT4_EXPERT_GROUP: Final = 32


def check_shards(geometry: Geometry, ranks: int, *, expert_parallel: bool = False) -> None:
    """Raise `SizingError` when vLLM would refuse to load the weights on so many ranks.

    Qwen3-235B-A22B-FP8 at 8 ranks: experts of 1,536 / 8 = 192 are not whole blocks of 128.
    """
    odd = _odd_shard(geometry, ranks, expert_parallel=expert_parallel)
    if odd is None:
        return
    matrix, width, unit = odd
    sizes = [size for size in range(1, ranks) if geometry.num_attention_heads % size == 0]
    suiting = [size for size in sizes if _odd_shard(geometry, size, expert_parallel=expert_parallel) is None]
    fitting = ", ".join(str(size) for size in suiting) or "none"
    whole = matrix.columns if matrix.split is Split.COLUMNS else matrix.rows
    message = (
        f"perReplica is {ranks}, but {matrix.name} of width {whole:,} cut to {width:,} is not whole quantization "
        f"blocks of {unit}; sizes below {ranks} that are: {fitting}"
    )
    if matrix.kind is Kind.EXPERTS:
        message += " (with expert parallelism, --enable-expert-parallel, experts are not cut)"
    raise SizingError(message, attribute="tensor_parallel_size")


def _odd_shard(geometry: Geometry, ranks: int, *, expert_parallel: bool) -> tuple[Matrix, int, int] | None:
    """The first matrix whose shard is not whole, with the shard's width and the unit."""
    fmt = geometry.weight_format
    for matrix in geometry.weights.matrices:
        experts = matrix.kind is Kind.EXPERTS
        if not matrix.quantized or not (experts or matrix.kind is Kind.LINEAR) or matrix.split is Split.NONE:
            continue
        if experts and expert_parallel:
            continue
        unit = _unit(fmt, matrix, geometry.quantization.group_size)
        rows, columns = matrix.shard(ranks)
        width = columns if matrix.split is Split.COLUMNS else rows
        whole = matrix.columns if matrix.split is Split.COLUMNS else matrix.rows
        cut = whole != width or (experts and fmt is WeightFormat.FP8_BLOCK)
        if unit > 1 and cut and width % unit:
            return matrix, width, unit
    return None


def _unit(fmt: WeightFormat, matrix: Matrix, group: int) -> int:
    """What the split side of a shard must be a multiple of; 1: anything."""
    if matrix.kind is not Kind.EXPERTS and fmt in EXPERTS_ONLY:
        return 1
    if fmt is WeightFormat.FP8_BLOCK:
        return FP8_BLOCK_SIZE
    if matrix.split is not Split.COLUMNS:
        return 1
    if fmt is WeightFormat.INT4_EXPERTS:
        return _INT4_EXPERT_GROUP
    if fmt in (WeightFormat.INT4, WeightFormat.INT8) and group < round_up(matrix.columns, group):
        return group
    return 1
