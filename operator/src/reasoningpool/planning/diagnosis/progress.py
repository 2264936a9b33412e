"""A tier in one reason and one message, judged by what is live of it.

Messages are written for `kubectl get` and `kubectl describe` alone: what is wrong, what to do, and what still serves.
Times are points in time, not seconds that run, so that a message stays the same while nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.conditions import Reason
from reasoningpool.objects import ordinal, timestamp
from reasoningpool.planning.diagnosis.apply_failures import refused_of_tier
from reasoningpool.planning.diagnosis.pod_creation import explain_missing_pod
from reasoningpool.planning.diagnosis.pods import Diagnosis, diagnose, diagnose_leaving, last_failure
from reasoningpool.planning.diagnosis.words import quoted
from reasoningpool.planning.live import LivePod, LiveTier
from reasoningpool.planning.observations import ContainerLogRequest, PodCreationFailuresRequest
from reasoningpool.planning.outcome import TierOutcome, fit_message
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.sizing import DoesNotFit, SizingPlan

_MOST_DETAILS: Final = 3  # pods that a message tells of one by one


@dataclass(frozen=True, slots=True)
class TierState:
    """The tier in one reason and message, and where more could be read about it."""

    reason: Reason
    message: str
    unexplained_pods: tuple[LivePod, ...] = ()  # their logs may say more
    missing_pods: PodCreationFailuresRequest | None = None


def tier_state(outcome: TierOutcome, snapshot: Snapshot, *, now: datetime, suspended: bool = False) -> TierState:
    """Why a tier is not ready, judged by its live pods; AllReplicasReady when it is."""
    name, live = outcome.tier.name, outcome.live
    if isinstance(outcome.sizing, DoesNotFit):
        return TierState(Reason.DOES_NOT_FIT, f"tier {name}: {fit_message(outcome.sizing)}; {_left_as_it_is(live)}")
    keys = {(m["kind"], m["metadata"]["name"]) for m in outcome.manifests}
    if failures := refused_of_tier(snapshot.failures, keys):
        return TierState(Reason.APPLY_FAILED, f"tier {name}: {failures}")
    if live.stateful_set is None:
        if suspended:
            return TierState(Reason.SUSPENDED, f"tier {name}: nothing is created while spec.suspend is true")
        return TierState(Reason.CREATING, f"tier {name}: its StatefulSet is being created")
    desired = live.spec_replicas if suspended else outcome.replicas.desired
    leaving = _leaving(live, str(live.stateful_set["metadata"]["name"]), desired)
    missing = _missing_pods(live, leaving)
    found = _diagnoses(live, leaving, snapshot, now)
    unexplained = tuple(pod for pod, diagnosis in found if not diagnosis.words)
    failures_of = snapshot.observations.of(PodCreationFailuresRequest)
    refused = explain_missing_pod(
        failures_of.get(missing.subject, ()) if missing else (), (pod.name for pod in live.pods)
    )
    if not found and refused is None:
        state = _kept_back(outcome, live) if suspended else None
        state = state or _progress(outcome, live, leaving, desired)
        return TierState(state.reason, state.message, (), missing)
    texts: list[str] = []
    reason = Reason.PODS_REFUSED
    if found:
        # The pod that fails in the most telling way speaks for the tier.
        telling = min(found, key=lambda entry: (not entry[1].words, entry[0].name))[1]
        reason = telling.reason
        texts.append(telling.message + (f" ({len(found)} of {desired} replicas)" if len(found) > 1 else ""))
    if refused is not None:
        lacking = max(1, desired - len(live.pods))
        texts.append(f"{lacking} of {desired} pods rejected by the API server: {refused}")
    return TierState(reason, f"tier {name}: {'; and '.join(texts)}{_serving(live, desired)}", unexplained, missing)


def _left_as_it_is(live: LiveTier) -> str:
    if live.stateful_set is None:
        return "nothing is created for it"
    return (
        f"its StatefulSet stays as it was, and so do its {live.spec_replicas} replicas ({live.ready_pods} ready),"
        " until the budgets fit"
    )


def _serving(live: LiveTier, desired: int) -> str:
    return f"; {min(live.ready_pods, desired)} of {desired} replicas serve" if live.ready_pods else ""


def _leaving(live: LiveTier, workload: str, desired: int) -> tuple[LivePod, ...]:
    """Pods on their way out that are replaced; those of a tier that shrinks are not missed."""
    return tuple(pod for pod in live.leaving if (ordinal(pod.name, workload) or 0) < desired)


def _missing_pods(live: LiveTier, leaving: tuple[LivePod, ...]) -> PodCreationFailuresRequest | None:
    """The StatefulSet's events are worth reading where pods are missing that nothing else stands for."""
    if live.stateful_set is None or not live.observed or len(live.pods) + len(leaving) >= live.spec_replicas:
        return None
    meta = live.stateful_set["metadata"]
    return PodCreationFailuresRequest(namespace=str(meta["namespace"]), stateful_set_uid=str(meta["uid"]))


def _diagnoses(
    live: LiveTier, leaving: tuple[LivePod, ...], snapshot: Snapshot, now: datetime
) -> list[tuple[LivePod, Diagnosis]]:
    logs = snapshot.observations.of(ContainerLogRequest)
    found = [(pod, diagnose(pod, logs.get(pod.uid))) for pod in live.pods]
    found += [(pod, diagnose_leaving(pod, now)) for pod in leaving]
    return [(pod, diagnosis) for pod, diagnosis in found if diagnosis is not None]


def _kept_back(outcome: TierOutcome, live: LiveTier) -> TierState | None:
    """What a suspended pool does not do, None if there is nothing of the kind."""
    waiting = [outcome.change] if outcome.change else []
    if outcome.replicas.desired != live.spec_replicas:
        waiting.append(f"{outcome.replicas.desired} replicas in place of {live.spec_replicas}")
    if not waiting:
        return None
    return TierState(
        Reason.SUSPENDED,
        f"tier {outcome.tier.name}: {live.ready_pods} of {live.spec_replicas} replicas ready; held back while"
        f" spec.suspend is true: {'; '.join(waiting)}",
    )


def _progress(outcome: TierOutcome, live: LiveTier, leaving: tuple[LivePod, ...], desired: int) -> TierState:
    name = outcome.tier.name
    # Until the controller has the new template, even a pod of its newest revision is an old one.
    current = () if outcome.change is not None else live.current_pods
    ready = sum(pod.ready for pod in current)
    if desired == 0 and not live.pods:
        return TierState(Reason.SCALED_TO_ZERO, f"tier {name}: 0 replicas wanted")
    details = _details(outcome, current, leaving)
    if outcome.change is not None or not live.observed or len(current) < len(live.pods):
        old = sum(pod.ready for pod in live.pods) - ready
        return TierState(
            Reason.ROLLOUT_IN_PROGRESS,
            f"tier {name}: {len(current)} of {desired} replicas run the new revision, {ready} of them ready"
            + (f"; {old} of the old revision still serve" if old else "")
            + details,
        )
    if not live.pods and not leaving:
        assert live.stateful_set is not None  # said before this
        found = f"statefulset {live.stateful_set['metadata']['name']}"
        return TierState(
            Reason.CREATING,
            f"tier {name}: none of {desired} pods has been created yet; if this lasts, kubectl describe {found}"
            " shows what rejects them (a quota, a LimitRange, a missing PriorityClass)",
        )
    if ready < desired:
        silent = all(_fell_silent(pod) for pod in current if not pod.ready) and len(current) >= desired
        reason = Reason.NOT_READY if silent else Reason.STARTING
        return TierState(reason, f"tier {name}: {ready} of {desired} replicas ready{details}")
    if len(current) > desired:
        return TierState(
            Reason.ROLLOUT_IN_PROGRESS, f"tier {name}: {len(current) - desired} surplus replicas are draining"
        )
    return TierState(Reason.ALL_READY, f"tier {name}: {ready} of {desired} replicas ready{_restarts(current)}")


def _details(outcome: TierOutcome, current: Iterable[LivePod], leaving: tuple[LivePod, ...]) -> str:
    """What each pod that does not serve is about, of the first few."""
    texts = [_on_its_way(pod, outcome) for pod in current if not pod.ready] + [_going(pod) for pod in leaving]
    more = len(texts) - _MOST_DETAILS
    shown = [*texts[:_MOST_DETAILS], *([f"and {more} more"] if more > 0 else [])]
    return "".join(f"; {text}" for text in shown)


def _on_its_way(pod: LivePod, outcome: TierOutcome) -> str:
    if pod.condition("PodScheduled").get("status") != "True" and not pod.containers:
        return f"{pod.name} is waiting for the scheduler"
    engine = _engine_state(pod)
    if "running" not in engine.get("state", {}):
        return f"{pod.name} is being prepared (images, volumes, init containers; see kubectl describe pod)"
    if _fell_silent(pod):
        return f"{pod.name} was serving but no longer passes its readiness probe (kubectl logs {pod.name})"
    if engine.get("started"):
        return f"{pod.name} has loaded its model but has not passed its readiness probe yet"
    budget = _startup_seconds(pod)
    if budget is None:
        budget = outcome.sizing.startup_budget_seconds if isinstance(outcome.sizing, SizingPlan) else 0
    since = engine["state"]["running"].get("startedAt")
    if not since:
        return f"{pod.name} loads its model, for at most {budget} s"
    end = timestamp(datetime.fromisoformat(str(since)) + timedelta(seconds=budget))
    return f"{pod.name} has been loading its model since {since}, for at most {budget} s (until {end})"


def _going(pod: LivePod) -> str:
    end = pod.body["metadata"]["deletionTimestamp"]
    why = pod.condition("DisruptionTarget")
    cause = f" ({why.get('reason')}: {quoted(str(why.get('message', '')))})" if why.get("status") == "True" else ""
    return f"{pod.name} finishes its requests until {end} at the latest, then it is replaced{cause}"


def _engine_state(pod: LivePod) -> dict[str, Any]:
    found = [dict(c) for c in pod.containers if c.get("name") == names.ENGINE_CONTAINER]
    return found[0] | {"state": found[0].get("state") or {}} if found else {}


def _fell_silent(pod: LivePod) -> bool:
    """Whether the engine that runs was ready before: its pod's readiness changed after the engine's start."""
    engine, changed = _engine_state(pod), pod.condition("Ready").get("lastTransitionTime")
    since = (engine.get("state", {}).get("running") or {}).get("startedAt")
    if not engine.get("started") or not since or not changed:
        return False
    return datetime.fromisoformat(str(changed)) > datetime.fromisoformat(str(since))


def _startup_seconds(pod: LivePod) -> int | None:
    """What the pod's own start-up probe grants, which is what the kubelet goes by."""
    containers = (pod.body.get("spec") or {}).get("containers") or ()
    for probe in (c.get("startupProbe") for c in containers if c.get("name") == names.ENGINE_CONTAINER):
        if probe:
            tries = int(probe.get("failureThreshold", 3)) * int(probe.get("periodSeconds", 10))
            return int(probe.get("initialDelaySeconds", 0)) + tries
    return None


def _restarts(pods: Iterable[LivePod]) -> str:
    """Engines that serve again after they failed: all is well now, and it may happen again."""
    found = [text for pod in pods if (text := last_failure(pod))]
    return f"; {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else "") if found else ""
