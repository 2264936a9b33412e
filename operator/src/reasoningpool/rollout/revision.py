"""When pods roll: only when their user changed what they run.

Any difference in a StatefulSet's pod template restarts every pod, which on GPUs means minutes of loading per
replica. So a template that is live stays as it is until three things have changed together:

- the *intent*: a digest of those parts of the resource that are about this tier's pods, as the user wrote them
  (absent fields stay absent, so no default enters). An upgrade of the operator, with other defaults, other
  catalog figures or another default image, does not change it, nor does a change of replicas, scaling,
  rollout, gateway, monitoring or of the pool's metadata.
- the *revision*: a digest of what the pods run: the tier with everything decided and those results of the
  sizing that reach the pod. A budget edited without any effect on them does not change it. What only the
  operator chooses (labels, defaults of probes, environment, default resources) is not in it, so that an
  edit without effect does not take a new default along.
- the rendered *template* itself: an edit that renders to the same template does not count.

The revision is an annotation of the pod template, so pods carry it. The other two are annotations of the
StatefulSet, where they restart nothing. So is the limit of sequences that the template runs with, which a
correction of the sizing is judged by.

A template that stays is sent again as it was rendered if the rendering is still the same, else as it is live.
The latter makes us owner of the fields that the server filled in as well, once, with equal values; afterwards
such an apply is a no-op again. What waits that way is applied together with the user's next change.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from reasoningpool.api import names
from reasoningpool.api.pod_overrides import PodOverrides, ResourceRequirements
from reasoningpool.api.scalars import amount
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_tier import TierSpec
from reasoningpool.objects import Manifest
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import SizingPlan

# On the StatefulSet, not on its pods.
ANNOTATION_INTENT: Final = f"{names.GROUP}/intent"
ANNOTATION_TEMPLATE: Final = f"{names.GROUP}/template"
ANNOTATION_MAX_NUM_SEQS: Final = f"{names.GROUP}/max-num-seqs"
_MOST_DIGITS: Final = 18  # of a number that somebody may have written by hand

# Of a tier's spec: what says nothing about its pods.
_NOT_ABOUT_PODS: Final = frozenset({"name", "replicas", "scaling", "rollout"})
# Of what a user writes about the pods: what says nothing about the KV pool or how it is used. Whatever is not
# listed counts, so that a field added later voids a correction rather than keeps a wrong one.
_NOT_ABOUT_SIZING: Final = {
    "model": frozenset({"source", "served_name", "parsers", "cache"}),
    "accelerator": frozenset({"tolerations"}),
    "engine": frozenset(
        {
            "image_pull_policy",
            "image_pull_secrets",
            "trust_remote_code",
            "chat_template",
            "api_key_secret_ref",
            "load_bandwidth",
            "startup_timeout_seconds",
        }
    ),
    "tier": frozenset({"model", "accelerator", "engine"}),
    # Of podOverrides only containers can tell on the KV pool: their variables, and sidecars on the same devices.
    "pod_overrides": frozenset(PodOverrides.model_fields) - {"containers", "init_containers"},
}
# Of an EffectiveTier: numbers of pods are not what they run; the calculation's input counts by its results.
_NOT_RUN: Final = frozenset({"name", "path", "replicas", "max_unavailable", "sizing_input"})
# Results of the sizing that reach the pod.
_PLAN_RESULTS: Final = (
    "max_num_seqs",
    "max_model_len",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "shutdown_timeout_seconds",
    "pre_stop_seconds",
    "startup_budget_seconds",
)
# Fields of the overrides and of kvOffload that hold a quantity: 1Gi and 1024Mi are the same.
_QUANTITIES: Final = frozenset({"size_limit", "shared_memory", "cpu_memory"})


def pod_intent(spec: ReasoningPoolSpec, tier: TierSpec, *corrections: str) -> str:
    """Digest of what the user wrote about a tier's pods.

    `corrections` are decisions of the operator that are meant to roll the pods, such as a KV pool that was
    measured smaller than planned.
    """
    written = {
        "model": _plain(tier.model or spec.model),
        "accelerator": _plain(tier.accelerator or spec.accelerator),
        "engine": _plain(spec.engine) if spec.engine else {},
        "tier": {name: value for name, value in _plain(tier).items() if name not in _NOT_ABOUT_PODS},
        "corrections": list(corrections),
    }
    if spec.runtime is not None:
        written["runtime"] = _plain(spec.runtime)
    return digest(written)


def sizing_key(spec: ReasoningPoolSpec, tier: TierSpec) -> str:
    """Digest of what the user wrote that decides a tier's KV pool and its limits; defaults do not enter."""

    def part(kind: str, value: object) -> dict[str, Any]:
        return {name: item for name, item in _plain(value).items() if name not in _NOT_ABOUT_SIZING[kind]}

    own = part("tier", tier)
    if tier.pod_overrides is not None:
        own["pod_overrides"] = part("pod_overrides", tier.pod_overrides)
    return digest(
        {
            "model": part("model", tier.model or spec.model),
            "accelerator": part("accelerator", tier.accelerator or spec.accelerator),
            "engine": [found for engine in (spec.engine, tier.engine) if (found := part("engine", engine or {}))],
            "tier": {name: value for name, value in own.items() if name not in _NOT_ABOUT_PODS and value != {}},
        }
    )


def run_revision(tier: EffectiveTier, plan: SizingPlan) -> str:
    """Digest of what the pods of a tier run."""
    run = {name: value for name, value in _plain(tier).items() if name not in _NOT_RUN}
    # What the accelerator can do has gone into the plan; where it is found stays.
    run["accelerator"].pop("facts")
    run["model"].pop("thinking_budget_enforceable")
    # Only its image reaches the pod's template: the rest is in a ConfigMap that running pods read anew.
    run.pop("runtime", None)
    if tier.runtime is not None:
        run["runtime"] = tier.runtime.image
    if tier.model.cache is not None and tier.model.cache.claim_template is not None:
        # Size and class of claims concern claims that are made later; no pod needs a restart for them.
        run["model"]["cache"] = "claim template"
    return digest({"tier": run, "plan": {name: getattr(plan, name) for name in _PLAN_RESULTS}})


def bookkeeping(template: Mapping[str, Any], intent: str, *, max_num_seqs: int) -> dict[str, str]:
    """Annotations of the StatefulSet: by which `settle` decides, and what its template runs with."""
    written = {ANNOTATION_INTENT: intent} if intent else {}
    return {
        **written,
        ANNOTATION_MAX_NUM_SEQS: str(max_num_seqs),
        ANNOTATION_TEMPLATE: digest(_with_revision(template, "")),
    }


def settle(live: Manifest | None, rendered: Manifest) -> Manifest:
    """The StatefulSet to apply: `rendered`, with the live pod template where the pods have no reason to roll.

    Pure and idempotent: settling against the result of an earlier settling gives that result again. Without an
    intent (both empty) the revision and the template decide alone.
    """
    if live is None or not revision_of(live):
        return rendered
    was, now = _annotations(live), _annotations(rendered)
    if was.get(ANNOTATION_TEMPLATE) == now.get(ANNOTATION_TEMPLATE):
        same = copy.copy(rendered)
        same["spec"] = rendered["spec"] | {"template": _with_revision(rendered["spec"]["template"], revision_of(live))}
        return same
    same_intent = bool(now.get(ANNOTATION_INTENT)) and was.get(ANNOTATION_INTENT) == now.get(ANNOTATION_INTENT)
    if not same_intent and revision_of(live) != revision_of(rendered):
        return rendered
    kept = copy.deepcopy(rendered)
    kept["spec"]["template"] = _without_nulls(live["spec"]["template"])
    kept["metadata"]["annotations"][ANNOTATION_TEMPLATE] = was.get(ANNOTATION_TEMPLATE, "")
    if revision_of(live) != revision_of(rendered):  # else the limit is the same, being part of the revision
        _keep_annotation(ANNOTATION_MAX_NUM_SEQS, was, kept)
    _keep_claim_templates(live, kept, same_intent=same_intent)
    return kept


def revision_of(stateful_set: Mapping[str, Any]) -> str:
    """The digest of what a StatefulSet's pods run, empty on one that was not rendered here."""
    return str(_annotations(stateful_set["spec"]["template"]).get(names.ANNOTATION_REVISION, ""))


def running_max_num_seqs(stateful_set: Mapping[str, Any] | None) -> int | None:
    """The limit of sequences that a StatefulSet's template runs with, by its own record.

    None where there is no record: on one that an earlier version of the operator wrote and that runs an earlier plan.
    """
    text = _annotations(stateful_set or {}).get(ANNOTATION_MAX_NUM_SEQS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _keep_annotation(name: str, was: Mapping[str, str], kept: Manifest) -> None:
    kept["metadata"]["annotations"].pop(name, None)
    if name in was:
        kept["metadata"]["annotations"][name] = was[name]


def _with_revision(template: Mapping[str, Any], revision: str) -> dict[str, Any]:
    meta = template["metadata"]
    annotations = meta["annotations"] | {names.ANNOTATION_REVISION: revision}
    return {**template, "metadata": {**meta, "annotations": annotations}}


def _keep_claim_templates(live: Manifest, kept: Manifest, *, same_intent: bool) -> None:
    """Claim templates cannot be changed in place: the live ones stay unless the user changed theirs."""
    before, after = live["spec"].get("volumeClaimTemplates") or [], kept["spec"].get("volumeClaimTemplates") or []
    same_names = [entry["metadata"]["name"] for entry in before] == [entry["metadata"]["name"] for entry in after]
    if not same_intent and same_names:
        return
    if not before:
        kept["spec"].pop("volumeClaimTemplates", None)
        return
    kept["spec"]["volumeClaimTemplates"] = [
        {name: value for name, value in _without_nulls(entry).items() if name != "status"} for entry in before
    ]


def _annotations(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    return (manifest.get("metadata") or {}).get("annotations") or {}


def _without_nulls(value: Any) -> Any:
    """A copy without the nulls the server writes, such as creationTimestamp."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_nulls(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """JSON of a model or dataclass without what is absent, so that a new optional field changes no digest."""
    if value is None or isinstance(value, (str, int, float)):  # nearly all there is
        return str(value) if isinstance(value, str) else value
    if isinstance(value, ResourceRequirements):
        kinds = {"requests": value.requests or {}, "limits": value.limits or {}}
        return {kind: {name: _number(item) for name, item in entries.items()} for kind, entries in kinds.items()}
    if isinstance(value, BaseModel):
        return _fields({name: getattr(value, name) for name in type(value).model_fields})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: _number(value) if name in _QUANTITIES else _plain(value)
        for name, value in values.items()
        if value is not None
    }
    # What holds nothing says as much as what is absent.
    return {name: value for name, value in plain.items() if value not in ([], {})}


def _number(value: str | int) -> str:
    return format(amount(value).normalize(), "f")


def digest(value: object) -> str:
    """Sixteen hexadecimal digits that depend on the value and not on the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
