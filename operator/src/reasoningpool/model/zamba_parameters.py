"""Weight matrices of Zamba 2, whose attention layers share a few blocks of weights and differ by adapters only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.matrices import Matrix, Split, linear, small


def zamba_matrices(reader: ConfigReader, hidden: int, shared: Sequence[Matrix], hybrid_layers: int) -> list[Matrix]:
    """`shared` is one block's attention and feed-forward; the rest is per hybrid layer."""
    blocks = reader.integer("num_mem_blocks", high=1_000, default=1)
    found = [replace(matrix, layers=blocks) for matrix in shared]
    found.append(linear("linear", hidden, hidden, Split.NONE, layers=hybrid_layers))
    found.append(small("shared_norms", 3 * hidden, layers=blocks))
    rank = reader.integer("adapter_rank", high=10**5, default=128)
    width = 2 * hidden
    if reader.flag("use_shared_attention_adapter", default=False):
        for name in ("q", "k", "v"):
            found += _adapter(f"linear_{name}_adapter", width, rank, width, hybrid_layers)
    inner = reader.integer("intermediate_size", default=4 * hidden)
    return found + _adapter("gate_up_proj_adapter", hidden, rank, 2 * inner, hybrid_layers)


def _adapter(name: str, inputs: int, rank: int, outputs: int, layers: int) -> list[Matrix]:
    return [
        linear(f"{name}.A", rank, inputs, Split.ROWS, layers=layers),
        linear(f"{name}.B", outputs, rank, Split.ROWS, layers=layers),
    ]
