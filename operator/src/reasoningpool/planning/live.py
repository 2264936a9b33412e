"""Reading what is there: StatefulSets and pods as planning needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.objects import Manifest, controller_uid, ordinal

REVISION_LABEL: Final = "controller-revision-hash"
# Long enough that a cycle meets it, short enough that the event of an hour ago is not sent anew.
_NEW: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class LivePod:
    """A pod of a tier."""

    body: Manifest

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.body["metadata"].get("uid", ""))

    @property
    def revision(self) -> str:
        """The StatefulSet revision it was made from."""
        return str(self.body["metadata"].get("labels", {}).get(REVISION_LABEL, ""))

    @property
    def controller(self) -> str:
        """Uid of the object that controls it, empty if none does."""
        return controller_uid(self.body) or ""

    @property
    def claims(self) -> Mapping[str, str]:
        """Name of the claim behind each of its volumes that has one."""
        volumes = (self.body.get("spec") or {}).get("volumes") or ()
        return {
            str(volume["name"]): str(volume["persistentVolumeClaim"]["claimName"])
            for volume in volumes
            if volume.get("persistentVolumeClaim")
        }

    @property
    def terminating(self) -> bool:
        """Whether its deletion has begun; such a pod serves no new requests, whatever its Ready condition says."""
        return "deletionTimestamp" in self.body["metadata"]

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return not self.terminating and self.condition("Ready").get("status") == "True"

    def condition(self, kind: str) -> Mapping[str, Any]:
        """A condition of the pod, empty if it has none of that type."""
        found = [c for c in self.status.get("conditions") or () if c.get("type") == kind]
        return found[0] if found else {}

    @property
    def status(self) -> Mapping[str, Any]:
        """The pod's status, empty before the kubelet saw it."""
        return self.body.get("status") or {}

    @property
    def containers(self) -> tuple[Mapping[str, Any], ...]:
        """Statuses of init containers and containers, in the order they start."""
        return (
            *(self.status.get("initContainerStatuses") or ()),
            *(self.status.get("containerStatuses") or ()),
        )


@dataclass(frozen=True, slots=True)
class LiveTier:
    """A tier's StatefulSet (None before it exists) and its pods that are not on their way out."""

    stateful_set: Manifest | None
    pods: tuple[LivePod, ...]

    @property
    def spec_replicas(self) -> int:
        """Replicas the StatefulSet asks for, 0 before it exists."""
        if self.stateful_set is None:
            return 0
        replicas = self.stateful_set["spec"].get("replicas")
        return 1 if replicas is None else int(replicas)

    @property
    def observed(self) -> bool:
        """Whether the StatefulSet controller has seen the newest template."""
        if self.stateful_set is None:
            return False
        seen = (self.stateful_set.get("status") or {}).get("observedGeneration", 0)
        return int(seen) >= int(self.stateful_set["metadata"].get("generation", 0))

    @property
    def update_revision(self) -> str:
        """The revision all pods should have."""
        return str(((self.stateful_set or {}).get("status") or {}).get("updateRevision", ""))

    @property
    def current_pods(self) -> tuple[LivePod, ...]:
        """Pods of the newest revision; none while the controller has not seen it."""
        if not self.observed:
            return ()
        return tuple(pod for pod in self.pods if pod.revision == self.update_revision)

    def is_new(self, now: datetime) -> bool:
        """Whether the StatefulSet came into being a moment ago; it is seen, so its creation was not refused."""
        created = self.stateful_set["metadata"].get("creationTimestamp") if self.stateful_set else None
        return created is not None and abs(now - datetime.fromisoformat(created)) < _NEW

    @property
    def pods_by_ordinal(self) -> Mapping[int, LivePod]:
        """Pods that the StatefulSet controls and asks for, in ascending order."""
        if self.stateful_set is None:
            return {}
        meta = self.stateful_set["metadata"]
        own = [pod for pod in self.pods if pod.controller and pod.controller == meta.get("uid")]
        found = {place: pod for pod in own if (place := ordinal(pod.name, meta["name"])) is not None}
        return {place: found[place] for place in sorted(found) if place < self.spec_replicas}

    def has_claims(self, pod: LivePod) -> bool:
        """Whether a pod uses the claims that the StatefulSet's templates make for it."""
        templates = (self.stateful_set or {"spec": {}})["spec"].get("volumeClaimTemplates") or ()
        claims = [template["metadata"]["name"] for template in templates]
        return all(pod.claims.get(name) == f"{name}-{pod.name}" for name in claims)

    @property
    def ready_pods(self) -> int:
        """Pods that serve, of whatever revision."""
        return sum(pod.ready for pod in self.pods)


def live_tier(children: Iterable[Manifest], pods: Iterable[Manifest], name: str, tier: str) -> LiveTier:
    """The StatefulSet with this name and the pods with this tier's label."""
    sets = [c for c in children if c["kind"] == "StatefulSet" and c["metadata"]["name"] == name]
    own = [LivePod(p) for p in pods if (p["metadata"].get("labels") or {}).get(names.LABEL_TIER) == tier]
    return LiveTier(
        sets[0] if sets else None, tuple(sorted((p for p in own if not p.terminating), key=lambda p: p.name))
    )
