"""What the API server refused of a tier, or of what belongs to the pool, in one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from reasoningpool.objects import KINDS, shorten
from reasoningpool.planning.snapshot import ApplyFailure

_MOST_NAMED: Final = 4
_MOST_TEXT: Final = 300  # characters of each refusal where there are several


def refused_of_tier(failures: tuple[ApplyFailure, ...], objects: Collection[tuple[str, str]]) -> str:
    """The refusals of these objects (kind and name), in their order: causes come first. Empty if there are none."""
    return refusals(f for f in failures if KINDS.of(f.key).shared or (f.key.kind, f.key.name) in objects)


def refusals(failures: Iterable[ApplyFailure]) -> str:
    """These refusals in their order, the first few of them; empty if there are none."""
    own = tuple(failures)
    room = len(own[0].message) if len(own) == 1 else _MOST_TEXT
    shown = [
        f"{failure.key.kind} {failure.key.name}: {shorten(failure.message, room)}" for failure in own[:_MOST_NAMED]
    ]
    more = [f"and {len(own) - _MOST_NAMED} more"] if len(own) > _MOST_NAMED else []
    return "; ".join(shown + more)
