"""A world of plain values for tests of planning: what an API server and its controllers would have made of a plan."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reasoningpool.planning.actions import Apply, Plan, Scale
from reasoningpool.planning.observations import (
    ContainerLog,
    ContainerLogRequest,
    KVPoolReport,
    KVPoolRequest,
    Observations,
    PodCreationFailure,
    PodCreationFailuresRequest,
)
from reasoningpool.planning.plan import PlanningSettings, plan
from reasoningpool.planning.snapshot import ApplyFailure, Snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """One pool, its children and pods. `step` plans and carries the plan out."""

    pool: dict[str, Any]
    children: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, ContainerLog] = field(default_factory=dict)
    failures: tuple[ApplyFailure, ...] = ()
    creation_failures: dict[str, tuple[PodCreationFailure, ...]] = field(default_factory=dict)
    kv_pools: dict[str, KVPoolReport] = field(default_factory=dict)
    settings: PlanningSettings = field(default_factory=PlanningSettings)
    deleted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool["metadata"] |= {"uid": "pool-uid", "generation": 1, "namespace": "default"}

    def edit(self, pool: dict[str, Any]) -> None:
        """The user applies another spec."""
        if pool["spec"] != self.pool["spec"]:
            self.pool["spec"] = pool["spec"]
            self.pool["metadata"]["generation"] += 1

    def snapshot(self) -> Snapshot:
        return Snapshot(
            pool=copy.deepcopy(self.pool),
            children=tuple(copy.deepcopy(list(self.children.values()))),
            pods=tuple(copy.deepcopy(list(self.pods.values()))),
            failures=self.failures,
            observations=Observations(
                {
                    ContainerLogRequest: self.logs,
                    PodCreationFailuresRequest: self.creation_failures,
                    KVPoolRequest: self.kv_pools,
                }
            ),
        )

    def plan(self) -> Plan:
        return plan(self.snapshot(), now=NOW, settings=self.settings)

    def step(self) -> Plan:
        done = self.plan()
        made = {apply.manifest["metadata"]["name"] for apply in done.applies if self._apply(apply)}
        for scale in done.scales:
            self._scale(scale, is_new=scale.key.name in made)
        for delete in done.deletes:
            self.deleted.append(delete.key.name)
            self.children.pop((delete.key.kind, delete.key.name), None)
            self.pods.pop(delete.key.name, None)
        if done.status is not None:
            self.pool["status"] = done.status
        return done

    def _apply(self, apply: Apply) -> bool:
        """Whether a StatefulSet was created by it; the API gives that 1 replica."""
        manifest = apply.manifest
        key = (manifest["kind"], manifest["metadata"]["name"])
        before = self.children.get(key)
        after = copy.deepcopy(manifest)
        after["metadata"]["uid"] = f"{key[0]}-{key[1]}"
        after["metadata"]["generation"] = 1
        if manifest["kind"] == "StatefulSet":
            after["spec"]["replicas"] = before["spec"].get("replicas") if before else 1
            after["status"] = before.get("status", {}) if before else {}
        elif before is not None and "status" in before:
            after["status"] = before["status"]
        if before is not None:
            same = before["spec"] == after["spec"] if "spec" in after else True
            after["metadata"]["generation"] = before["metadata"]["generation"] + (0 if same else 1)
        self.children[key] = after
        return before is None and manifest["kind"] == "StatefulSet"

    def _scale(self, scale: Scale, *, is_new: bool) -> None:
        """One that is new was created with its number, so that its first generation has it."""
        live = self.children[scale.key.kind, scale.key.name]
        if live["spec"]["replicas"] != scale.replicas:
            live["spec"]["replicas"] = scale.replicas
            live["metadata"]["generation"] += not is_new

    # The controllers

    def roll(self, name: str, *, ready: bool = True, keep: int = 0, **container: Any) -> None:
        """The StatefulSet controller has seen the template; all but `keep` pods run it."""
        stateful_set = self.children["StatefulSet", name]
        revision = f"{name}-{stateful_set['spec']['template']['metadata']['annotations']['reasoningpool.io/revision']}"
        stateful_set["status"] = {
            "observedGeneration": stateful_set["metadata"]["generation"],
            "updateRevision": revision,
        }
        labels = stateful_set["spec"]["template"]["metadata"]["labels"]
        for ordinal in range(stateful_set["spec"]["replicas"]):
            if ordinal >= keep:
                made = pod(f"{name}-{ordinal}", labels, revision, ready=ready, **container)
                owner = {
                    "kind": "StatefulSet",
                    "name": name,
                    "uid": stateful_set["metadata"]["uid"],
                    "controller": True,
                }
                made["metadata"]["ownerReferences"] = [owner]
                self.pods[f"{name}-{ordinal}"] = made


def pod(
    name: str, labels: dict[str, str], revision: str, *, ready: bool = True, container: str = "engine", **status: Any
) -> dict[str, Any]:
    """A pod as the API returns it; `status` are fields of the container's status."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}-{revision}",
            "labels": labels | {"controller-revision-hash": revision},
        },
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": container, "restartCount": 0, "state": {"running": {}}} | status],
        },
    }


def condition(status: dict[str, Any], kind: str = "Ready") -> dict[str, Any]:
    """One condition of a status."""
    return {entry["type"]: entry for entry in status["conditions"]}[kind]
