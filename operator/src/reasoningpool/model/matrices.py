"""Weight matrices of a model, as vLLM's modules hold them: shapes, what quantization applies, how ranks split them.

Shapes are `rows` (outputs) by `columns` (inputs). A column-parallel module of vLLM splits rows, a row-parallel one
splits columns, a replicated one is whole on every rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from reasoningpool.model.integers import ceil_div
from reasoningpool.model.quantization import Quantization, ignored_layers


class Split(Enum):
    """What tensor parallelism divides of a matrix."""

    ROWS = auto()
    COLUMNS = auto()
    NONE = auto()


class Kind(Enum):
    """What a matrix is, which decides whether it is quantized."""

    LINEAR = auto()  # attention, linear attention and dense feed-forward
    EXPERTS = auto()  # routed experts
    EMBEDDING = auto()  # vocabulary tables
    SMALL = auto()  # norms, routers, biases, convolutions: 16 bit always


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One matrix, or equal ones: `copies` (experts) in each of `layers` layers."""

    name: str  # as in checkpoints, below the layer: "self_attn.q_proj"
    kind: Kind
    rows: int
    columns: int = 1
    split: Split = Split.NONE
    units: int = 0  # rows come in this many heads; a rank holds whole heads, at least one (0: any division)
    copies: int = 1
    layers: int = 1
    quantized: bool = True  # False where the checkpoint's ignore list names it
    tensor: str = ""  # the merged tensor it is part of in vLLM ("self_attn.qkv_proj"); empty: its own
    absorbed: bool = False  # latent attention keeps a 16-bit copy of it beside a quantized one

    @property
    def parameters(self) -> int:
        """Elements of all copies in all layers."""
        return self.rows * self.columns * self.copies * self.layers

    def shard(self, ranks: int) -> tuple[int, int]:
        """Rows and columns on one of `ranks` ranks."""
        if self.split is Split.ROWS:
            if self.units:
                return max(1, self.units // ranks) * (self.rows // self.units), self.columns
            return ceil_div(self.rows, ranks), self.columns
        if self.split is Split.COLUMNS:
            return self.rows, ceil_div(self.columns, ranks)
        return self.rows, self.columns


def linear(name: str, rows: int, columns: int, split: Split, **more: int | str | bool) -> Matrix:
    """A linear layer's weight."""
    return Matrix(name=name, kind=Kind.LINEAR, rows=rows, columns=columns, split=split, **more)  # type: ignore[arg-type]


def small(
    name: str, rows: int, columns: int = 1, *, split: Split = Split.NONE, units: int = 0, layers: int = 1
) -> Matrix:
    """A weight that is never quantized."""
    return Matrix(name=name, kind=Kind.SMALL, rows=rows, columns=columns, split=split, units=units, layers=layers)


def placed(matrices: Iterable[Matrix], layers: Sequence[int], scheme: Quantization) -> list[Matrix]:
    """The matrices in these layers; parted where the ignore list names some of the layers only."""
    found: list[Matrix] = []
    for matrix in matrices if layers else ():
        whole = 0 if matrix.kind is Kind.SMALL else ignored_layers(scheme, matrix.name, layers)
        if whole:
            found.append(replace(matrix, layers=whole, quantized=False))
        if whole < len(layers):
            found.append(replace(matrix, layers=len(layers) - whole))
    return found
