"""Whether a tier's pods get the request runtime, and what it does there."""

from __future__ import annotations

from typing import Final

from reasoningpool.api.findings import Findings
from reasoningpool.api.spec_runtime import OverBudget, RuntimeSpec
from reasoningpool.api.spec_tier import EffortSpec, TierSpec
from reasoningpool.resolution.types import EffectiveRuntime
from reasoningpool.sizing.types import EngineVersion

# vLLM versions whose server the runtime was run in, or written against: (major, minor).
TESTED_VERSIONS: Final = ((0, 32), (0, 33))
_DEFAULT_EFFORT: Final = "medium"
_LOST: Final = "budgets per request are not enforced, and admission is vLLM's own"


def resolve_runtime(
    spec: RuntimeSpec | None, tier: TierSpec, version: EngineVersion | None, image: str | None, findings: Findings
) -> EffectiveRuntime | None:
    """The runtime of a tier, None where it is off: not wanted, no image known, or an engine it was not tested with.

    `image` is the operator's own. A server that the runtime does not know is served without it rather than broken.
    """
    stated = spec or RuntimeSpec()
    chosen = stated.image or image
    if stated.enabled is False:
        return None
    if chosen is None:
        if stated.enabled:
            findings.error(
                "spec.runtime.image",
                "no image of the request runtime is known: set this field, or the operator's --runtime-image",
            )
        return None
    if version is None or version[:2] not in TESTED_VERSIONS:
        tested = ", ".join(f"{major}.{minor}" for major, minor in TESTED_VERSIONS)
        shown = "of unknown version" if version is None else ".".join(map(str, version))
        findings.warning(
            "spec.runtime",
            f"the engine ({shown}) is none the request runtime was tested with ({tested}), so tier {tier.name} runs"
            f" without it: {_LOST}; set engine.version, or runtime.enabled to false",
        )
        return None
    return EffectiveRuntime(
        image=chosen,
        over_budget=stated.over_budget or OverBudget.CLAMP,
        show_thinking=stated.show_thinking is not False,
        tenant_header=stated.tenant_header,
        default_effort=tier.default_effort or _default_effort(tier.efforts),
    )


def _default_effort(efforts: tuple[EffortSpec, ...]) -> str:
    names = [effort.name for effort in efforts]
    return _DEFAULT_EFFORT if _DEFAULT_EFFORT in names else names[0]
