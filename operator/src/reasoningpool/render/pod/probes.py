"""Probes of the engine.

vLLM opens its port only once the model is loaded and listed under its served name (measured: connection
refused until then, 200 at once after), and `/health` turns 503 when the engine dies. So `/health` on the
engine's port is the truth for all three probes; `/v1/models` would need the API key and stays 200 with a
dead engine (field report R03). Readiness is the request runtime's where it runs: it knows a drain too.
"""

from __future__ import annotations

from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.findings import Finding
from reasoningpool.api.pod_overrides import ProbeOverride
from reasoningpool.render.pod.doubts import override_warning
from reasoningpool.render.pod.runtime import readiness_path
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import SizingPlan

_STARTUP_PERIOD: Final = 10
# Fewer than this many seconds of failed liveness are no reason to reload a model for minutes (field report R20).
PATIENCE_SECONDS: Final = 30
# A dead engine drains nothing: what is left after preStop before it is killed.
_KILL_SECONDS: Final = 30

Probe = dict[str, Any]


def probes(tier: EffectiveTier, plan: SizingPlan, pre_stop_seconds: int) -> tuple[dict[str, Probe], list[Finding]]:
    """The three probes by field name, and warnings about overrides."""
    overrides = tier.overrides
    startup, startup_warnings = _startup(tier, plan, overrides.startup_probe if overrides else None)
    liveness, liveness_warnings = _liveness(tier, overrides.liveness_probe if overrides else None)
    for probe in (startup, liveness):
        probe["terminationGracePeriodSeconds"] = pre_stop_seconds + _KILL_SECONDS
    readiness = _merge(
        _probe(period=5, timeout=5, failures=3, path=readiness_path(tier)),
        overrides.readiness_probe if overrides else None,
    )
    return (
        {"startupProbe": startup, "readinessProbe": readiness, "livenessProbe": liveness},
        startup_warnings + liveness_warnings,
    )


def _startup(tier: EffectiveTier, plan: SizingPlan, override: ProbeOverride | None) -> tuple[Probe, list[Finding]]:
    """The engine may load for the whole start-up budget, whatever the period."""
    budget = tier.engine.startup_timeout_seconds or plan.startup_budget_seconds
    period = (override.period_seconds if override else None) or _STARTUP_PERIOD
    probe = _merge(_probe(period=period, timeout=5, failures=max(1, -(-budget // period))), override)
    granted = probe["periodSeconds"] * probe["failureThreshold"]
    if granted >= budget:
        return probe, []
    message = f"podOverrides.startupProbe: allows {granted} s, but loading may take {budget} s (AggressiveStartup)"
    return probe, [override_warning(tier, "startupProbe", message)]


def _liveness(tier: EffectiveTier, override: ProbeOverride | None) -> tuple[Probe, list[Finding]]:
    probe = _merge(_probe(period=10, timeout=10, failures=6), override)
    tolerated = probe["periodSeconds"] * probe["failureThreshold"]
    if tolerated >= PATIENCE_SECONDS:
        return probe, []
    message = (
        f"podOverrides.livenessProbe: restarts the engine after {tolerated} s without an answer (AggressiveLiveness):"
        f" a restart reloads the model; allow {PATIENCE_SECONDS} s or more"
    )
    return probe, [override_warning(tier, "livenessProbe", message)]


def _probe(*, period: int, timeout: int, failures: int, path: str = "/health") -> Probe:
    return {
        "httpGet": {"path": path, "port": names.ENGINE_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def _merge(probe: Probe, override: ProbeOverride | None) -> Probe:
    """The override's fields over the probe's; path and port stay."""
    if override is None:
        return probe
    return {**probe, **override.model_dump(by_alias=True, exclude_none=True)}
