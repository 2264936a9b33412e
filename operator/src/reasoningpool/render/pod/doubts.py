"""Warnings about overrides that render otherwise than written, or that may hurt."""

from __future__ import annotations

from reasoningpool.api.findings import Finding, warning
from reasoningpool.resolution.types import EffectiveTier


def override_warning(tier: EffectiveTier, field: str, message: str) -> Finding:
    """A warning about a field of the tier's podOverrides, with a message that names it."""
    return warning(f"{tier.path}.podOverrides.{field}", message, tier=tier.name, standalone=True)
