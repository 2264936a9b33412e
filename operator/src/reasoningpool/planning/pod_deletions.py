"""Pods that the StatefulSet controller leaves as they are for ever, and that therefore must be deleted for it.

Two kinds. A pod of an old revision that does not serve: the controller may wait for it to become ready before it
goes on (field report R06). And a pod without the claims its StatefulSet asks for: claim templates are immutable, so
that a new one comes with a new StatefulSet that adopts the pods; but volumes of a pod are immutable too, and the
controller does nothing else for a tier while it cannot bring a pod to its claims. A claim template that is taken away
needs no help: the pod template changes with it, and the controller does not mind a volume too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reasoningpool.api.conditions import Reason
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.actions import Delete, EventNote, EventType
from reasoningpool.planning.diagnosis.pods import diagnose
from reasoningpool.planning.live import LivePod, LiveTier
from reasoningpool.planning.observations import ContainerLogRequest
from reasoningpool.planning.outcome import TierOutcome
from reasoningpool.planning.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeletion:
    """A pod to delete, with its grace period, and the event that says why."""

    pod: Delete
    note: EventNote


def pod_deletions(outcomes: tuple[TierOutcome, ...], snapshot: Snapshot) -> tuple[PodDeletion, ...]:
    """The pods to delete now; none of a tier whose pod template is about to change."""
    found: list[PodDeletion] = []
    for outcome in outcomes:
        if outcome.live.stateful_set is None or outcome.change is not None:
            continue
        lacking = _lacking_claims(outcome.live)
        for pod in _stuck(outcome.live):
            if pod not in lacking.values():
                why = "it does not serve and is of an old revision"
                found.append(_deletion(pod, Reason.STUCK_POD_DELETED, why))
        for pod in _replaceable(outcome, lacking, snapshot):
            why = "its StatefulSet asks for claims, which cannot be added to a running pod"
            found.append(_deletion(pod, Reason.POD_REPLACED, why))
    return tuple(found)


def _stuck(live: LiveTier) -> tuple[LivePod, ...]:
    if not live.observed or not live.update_revision:
        return ()
    return tuple(pod for pod in live.pods if not pod.ready and pod.revision and pod.revision != live.update_revision)


def _lacking_claims(live: LiveTier) -> dict[int, LivePod]:
    """The pods, by ordinal and lowest first, that the StatefulSet has adopted and cannot bring to its claims."""
    return {ordinal: pod for ordinal, pod in live.pods_by_ordinal.items() if not live.has_claims(pod)}


def _replaceable(outcome: TierOutcome, lacking: dict[int, LivePod], snapshot: Snapshot) -> Iterator[LivePod]:
    """Those of `lacking` that may go now, so that no more than `maxUnavailable` replicas are away.

    The lowest goes first, other than in a rollout: the controller creates replicas in ascending order and stops at
    the first that it cannot bring to its claims, so that a pod above that one would not come back. For the same
    reason a replica above it that is missing or fails is not waited for: it cannot come before this one is replaced.
    """
    if not lacking:
        return
    live, lowest = outcome.live, min(lacking)
    logs = snapshot.observations.of(ContainerLogRequest)

    def is_away(ordinal: int) -> bool:
        pod = live.pods_by_ordinal.get(ordinal)
        if pod is None:
            return ordinal < lowest
        if pod.ready:
            return False
        return ordinal not in lacking or diagnose(pod, logs.get(pod.uid)) is None

    room = outcome.tier.max_unavailable - sum(is_away(ordinal) for ordinal in range(live.spec_replicas))
    for pod in lacking.values():
        if pod.ready and room <= 0:
            return
        room -= pod.ready
        yield pod


def _deletion(pod: LivePod, reason: Reason, why: str) -> PodDeletion:
    key = ObjectKey.of({"apiVersion": "v1", "kind": "Pod", "metadata": pod.body["metadata"]})
    text = f"deleting pod {pod.name}: {why}"
    note = EventNote(type=EventType.NORMAL, reason=str(reason), message=text, action="Delete")
    return PodDeletion(pod=Delete(key=key, uid=pod.uid, why=why), note=note)
