"""Where a pod may run: the accelerator's nodes, the user's wishes, and spread over hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.pod_placement import Toleration
from reasoningpool.render.metadata import PoolIdentity
from reasoningpool.resolution.types import EffectiveTier

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
# Counts pods of one revision only, else a rollout's new pods all land where the old ones are not (field report R14).
_PER_REVISION: Final = "controller-revision-hash"


def scheduling(pool: PoolIdentity, tier: EffectiveTier) -> dict[str, Any]:
    """The pod fields that place it."""
    overrides = tier.overrides or PodOverrides()
    fields: dict[str, Any] = {}
    stated_nodes = overrides.node_selector or {}
    labels = {key: values for key, values in tier.accelerator.node_labels.items() if key not in stated_nodes}
    selector = {key: values[0] for key, values in labels.items() if len(values) == 1} | stated_nodes
    if selector:
        fields["nodeSelector"] = dict(sorted(selector.items()))
    affinity = _affinity(overrides, {key: values for key, values in labels.items() if len(values) > 1})
    if affinity:
        fields["affinity"] = affinity
    tolerations = list(dict.fromkeys((*tier.accelerator.tolerations, *(overrides.tolerations or ()))))
    if tolerations:
        fields["tolerations"] = [_toleration(toleration) for toleration in tolerations]
    fields["topologySpreadConstraints"] = _spread(pool, tier, overrides)
    return fields


def _affinity(overrides: PodOverrides, alternatives: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The user's affinity with the accelerator's nodes required in each of its alternatives."""
    affinity: dict[str, Any] = {}
    if overrides.affinity is not None:
        affinity = overrides.affinity.model_dump(by_alias=True, exclude_none=True, mode="json")
    if not alternatives:
        return affinity
    ours = [{"key": key, "operator": "In", "values": list(values)} for key, values in sorted(alternatives.items())]
    required = affinity.setdefault("nodeAffinity", {}).setdefault(_REQUIRED, {})
    # Terms are alternatives of each other, so ours goes into every one.
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*term.get("matchExpressions", ()), *ours]} for term in terms
    ]
    return affinity


def _toleration(toleration: Toleration) -> dict[str, Any]:
    """With the operator written out, which is Equal where nobody says."""
    return {"operator": "Equal", **toleration.model_dump(by_alias=True, exclude_none=True, mode="json")}


def _spread(pool: PoolIdentity, tier: EffectiveTier, overrides: PodOverrides) -> list[dict[str, Any]]:
    own = {
        "labelSelector": {"matchLabels": names.tier_selector(pool.name, tier.name)},
        "matchLabelKeys": [_PER_REVISION],
    }
    if overrides.topology_spread_constraints is None:
        host = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        return [{**host, **own}]
    constraints: list[dict[str, Any]] = []
    for constraint in overrides.topology_spread_constraints:
        stated = constraint.model_dump(by_alias=True, exclude_none=True, mode="json")
        constraints.append(stated if constraint.label_selector is not None else {**own, **stated})
    return constraints
