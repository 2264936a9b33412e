"""Where in the user's file a value stands that a tier uses: in the tier, or in the pool's part that it inherits."""

from __future__ import annotations

import re
from typing import Final

from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_engine import EngineSpec
from reasoningpool.api.spec_tier import TierSpec
from reasoningpool.resolution.engine import merge_engine

_EFFORT: Final = re.compile(r"efforts\[(?P<name>[^\]]*)\]\.(?P<field>\w+)(?:\.(?P<side>\w+))?")
# What the calculation names for itself, in the resource's words; empty where no single field says it.
_OTHER_NAMES: Final = {
    "accelerator memory": "accelerator.custom.memory",
    "model weight bytes": "model",
    "draft weight bytes": "speculative",
    "speculative.draftLayers": "speculative",
    "templateOverheadTokens": "",
    "loadBandwidth": "engine.loadBandwidth",
    "preStopSeconds": "podOverrides.preStopSeconds",
}
_ENGINE_FIELDS: Final = {str(info.alias or name): name for name, info in EngineSpec.model_fields.items()}


def written_path(spec: ReasoningPoolSpec, index: int, field: str | None) -> str:
    """The path of a tier's field, such as `engine.kvCacheMemory`, as it was written.

    A field that stands nowhere is named where a user would put it for all tiers.
    """
    tier, base = spec.tiers[index], f"spec.tiers[{index}]"
    field = _OTHER_NAMES.get(field or "", field or "")
    if effort := _EFFORT.fullmatch(field):
        return f"{base}.{_effort_path(tier, effort)}"
    head, _, rest = field.partition(".")
    match head:
        case "accelerator" | "model":
            return f"{base}.{field}" if getattr(tier, head) is not None else f"spec.{field}"
        case "engine":
            name, dot, below = rest.partition(".")
            return merge_engine(spec.engine, tier.engine, base).path(_ENGINE_FIELDS[name]) + dot + below
        case _:
            return f"{base}.{field}" if field else base


def _effort_path(tier: TierSpec, match: re.Match[str]) -> str:
    name, field, side = match["name"], match["field"], match["side"]
    if field == "promptTokens":
        return field
    listed = {"tokenDistribution": [entry.effort for entry in tier.token_distribution or ()]}
    names = listed.get(field, [effort.name for effort in tier.efforts])
    where = "tokenDistribution" if field in listed else "efforts"
    at = f"{where}[{names.index(name)}]" if name in names else where
    below = side if field in listed else field
    return f"{at}.{below}" if below else at
