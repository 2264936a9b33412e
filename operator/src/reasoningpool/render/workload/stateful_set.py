"""The StatefulSet of a tier."""

from __future__ import annotations

from typing import Any

from reasoningpool.api import names
from reasoningpool.api.findings import Finding
from reasoningpool.objects import Manifest
from reasoningpool.render.metadata import PoolIdentity, object_meta, tier_labels
from reasoningpool.render.pod.template import pod_template
from reasoningpool.render.pod.volumes import retention
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.rollout.revision import bookkeeping, run_revision
from reasoningpool.sizing.types import SizingPlan


def stateful_set(
    pool: PoolIdentity, tier: EffectiveTier, plan: SizingPlan, intent: str
) -> tuple[Manifest, tuple[Finding, ...]]:
    """The StatefulSet without replicas (those have a field manager of their own), and warnings."""
    template, store, warnings = pod_template(pool, tier, plan, run_revision(tier, plan))
    rolling: dict[str, Any] = {"partition": 0}
    if tier.max_unavailable != 1:
        # Servers before 1.35 drop or refuse the field, so it is sent only where it says something.
        rolling["maxUnavailable"] = tier.max_unavailable
    spec: dict[str, Any] = {
        "serviceName": names.headless_service_name(pool.name, tier.name),
        "selector": {"matchLabels": names.tier_selector(pool.name, tier.name)},
        # OrderedReady would wait forever for a broken lower replica, also when scaling down (field report R06).
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "persistentVolumeClaimRetentionPolicy": retention(tier),
        "revisionHistoryLimit": 3,
        "minReadySeconds": 0,
        "template": template,
    }
    if store.claim_templates:
        spec["volumeClaimTemplates"] = store.claim_templates
    name = names.child_name(pool.name, tier.name)
    meta = object_meta(
        pool, name, tier_labels(pool, tier.name), bookkeeping(template, intent, max_num_seqs=plan.max_num_seqs)
    )
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}, warnings
