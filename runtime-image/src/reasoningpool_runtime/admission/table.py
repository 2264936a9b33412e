"""Running outputs as arrays, one row each: what the forecast calculates with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reasoningpool_runtime.admission.ledger import Share, layout
from reasoningpool_runtime.admission.types import Capacity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """All but what grows with every token. `ranks` of shape (outputs, scenarios), the other arrays (outputs,)."""

    outputs: list[tuple[Share, int]]
    own_tokens: Floats  # of the prompt, in blocks that are not shared
    own_blocks: Floats  # whole blocks beside those
    caps: Integers
    ranks: Floats
    efforts: dict[str, Integers]  # rows of each
    shared: dict[object, tuple[int, list[int]]]  # blocks that several rows hold together, and the rows

    @classmethod
    def of(cls, shares: Sequence[Share], capacity: Capacity) -> Table:
        """The outputs that have not ended."""
        outputs = [(share, i) for share in shares for i, made in enumerate(share.generated) if made is not None]
        efforts: dict[str, list[int]] = defaultdict(list)
        shared: dict[object, tuple[int, list[int]]] = {}
        own_tokens, own_blocks = np.empty(len(outputs)), np.full(len(outputs), float(capacity.blocks_per_sequence))
        for row, (share, _) in enumerate(outputs):
            request = share.request
            efforts[request.effort].append(row)
            blocks, own_tokens[row] = divmod(request.prompt_tokens, capacity.block_tokens)
            if request.outputs == 1 and request.prefix is None:
                own_blocks[row] += blocks
                continue
            lies = layout(request, capacity.block_tokens)
            shared.setdefault(id(share), (lies.shared, []))[1].append(row)
            if lies.prefix:
                shared.setdefault(lies.prefix, (lies.prefix[1], []))[1].append(row)
        return cls(
            outputs,
            own_tokens,
            own_blocks,
            np.array([share.request.max_output_tokens for share, _ in outputs], dtype=np.int64),
            np.array([share.ranks[i] for share, i in outputs]),
            {effort: np.array(rows) for effort, rows in efforts.items()},
            shared,
        )

    def with_rows(self, other: Table) -> Table:
        """Both, the other's rows last."""
        if not self.outputs:
            return other
        offset = len(self.outputs)
        efforts, shared = dict(self.efforts), dict(self.shared)
        for effort, rows in other.efforts.items():
            mine = efforts.get(effort)
            efforts[effort] = rows + offset if mine is None else np.concatenate([mine, rows + offset])
        for key, (blocks, members) in other.shared.items():
            shared[key] = (blocks, [*shared.get(key, (0, []))[1], *(row + offset for row in members)])
        return Table(
            self.outputs + other.outputs,
            np.concatenate([self.own_tokens, other.own_tokens]),
            np.concatenate([self.own_blocks, other.own_blocks]),
            np.concatenate([self.caps, other.caps]),
            np.concatenate([self.ranks, other.ranks]),
            efforts,
            shared,
        )

    def generated(self) -> Integers:
        """Tokens each output has come to."""
        return np.array([share.generated[i] for share, i in self.outputs], dtype=np.int64)

    def fixed(self, remaining: Floats) -> Floats:
        """Whole blocks per row and scenario; what several rows share is given to the one that ends last."""
        fixed = np.repeat(self.own_blocks[:, None], remaining.shape[1], axis=1)
        scenarios = np.arange(remaining.shape[1])
        for blocks, rows in self.shared.values():
            fixed[np.array(rows)[remaining[rows].argmax(axis=0)], scenarios] += blocks
        return fixed
