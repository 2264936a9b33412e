"""How a replica stops: out of routing, SIGTERM, running requests finished, killed only after that.

`preStop` sleeps while endpoint changes reach every proxy; then the engine gets SIGTERM and finishes what
runs within `--shutdown-timeout`. The grace period is longer than both together in every pod (field report R05).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reasoningpool.api.findings import Finding, warning
from reasoningpool.render.pod.arguments import drains_itself
from reasoningpool.render.pod.doubts import override_warning
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import SizingPlan

# The engine needs this long to leave after its last request (measured: 4 to 5 s).
_EXIT_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Seconds of preStop and of the whole grace period, and warnings about overrides."""

    pre_stop_seconds: int
    grace_period_seconds: int
    warnings: tuple[Finding, ...]


def shutdown(tier: EffectiveTier, plan: SizingPlan) -> Shutdown:
    """Seconds of preStop and grace period; an override that would cut running requests is raised."""
    overrides = tier.overrides
    warnings: list[Finding] = []
    stated = overrides.pre_stop_seconds if overrides else None
    pre_stop = plan.pre_stop_seconds if stated is None else stated
    drain = plan.shutdown_timeout_seconds
    if not drains_itself(tier.engine.version):
        # Field report R04: an engine without --shutdown-timeout aborts at SIGTERM, so requests must finish before it.
        pre_stop, drain = pre_stop + drain, 0
        message = (
            f"engine.version: vLLM before 0.18 cannot finish requests after SIGTERM, so every stop of a replica waits"
            f" {pre_stop} s whether or not requests run"
        )
        warnings.append(warning(tier.path, message, tier=tier.name, standalone=True))
    needed = pre_stop + drain + _EXIT_SECONDS
    grace = max(needed, plan.termination_grace_period_seconds if stated is None else needed)
    wanted = overrides.termination_grace_period_seconds if overrides else None
    if wanted is not None and wanted > pre_stop + drain:
        grace = wanted
    elif wanted is not None:
        message = (
            f"podOverrides.terminationGracePeriodSeconds: {wanted} is not longer than preStop ({pre_stop} s) and the"
            f" time running requests may need ({drain} s); raised to {grace} (GracePeriodRaised)"
        )
        warnings.append(override_warning(tier, "terminationGracePeriodSeconds", message))
    return Shutdown(pre_stop, grace, tuple(warnings))
