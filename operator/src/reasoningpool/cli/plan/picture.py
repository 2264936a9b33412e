"""A capacity plan as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from reasoningpool.capacity.picture import Panel, draw
from reasoningpool.cli.plan.pools import PlannedPool


def as_svg(pools: Sequence[PlannedPool]) -> str:
    """The lengths against the budgets, a panel per tier."""
    panels = [
        Panel(title=f"{pool.name} / {planned.tier.name}", source=planned.source, requests=planned.requests)
        for pool in pools
        for planned in pool.tiers
    ]
    return draw(panels)
