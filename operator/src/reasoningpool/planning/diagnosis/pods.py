"""Why a pod is not ready, in words that tell what to do.

The engine's own last words come from the container's termination message (its log's end, by
`terminationMessagePolicy: FallbackToLogsOnError`) or from a log end that planning asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.conditions import Reason
from reasoningpool.planning.diagnosis.words import last_error, quoted, telling_line
from reasoningpool.planning.live import LivePod
from reasoningpool.planning.observations import ContainerLog


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A reason from the closed list and a message; `words` is False where the engine's own words are missing."""

    reason: Reason
    message: str
    words: bool = True


_PULL: Final = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_CONFIG: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_MISSING_DEVICE: Final = re.compile(r"Insufficient ([a-z0-9.-]{1,253}/[A-Za-z0-9._-]{0,62}[A-Za-z0-9])")
_MISSING: Final = re.compile(r"Insufficient (cpu|memory|ephemeral-storage)")
_QUIET_EXITS: Final = 3  # restarts after a clean exit before it counts as a crash loop
_LATE_SECONDS: Final = 60.0  # how long after its last moment a pod may still be there


def diagnose(pod: LivePod, log: ContainerLog | None) -> Diagnosis | None:
    """Why this pod is not ready, None while nothing is wrong (it is ready or on its way)."""
    if pod.ready or pod.terminating:
        return None
    if pod.status.get("phase") == "Failed" and pod.status.get("reason"):
        return _ended_by_node(pod)
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "SchedulingGated":
        return Diagnosis(
            Reason.UNSCHEDULABLE,
            f"pod {pod.name} is waiting for scheduling gates ({_gates(pod)}); it starts once their owner, for"
            " example Kueue, removes them",
        )
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _unschedulable(pod, str(scheduled.get("message", "")))
    for container in pod.containers:
        found = _container(pod, container, log)
        if found is not None:
            return found
    return _lost_node(pod)


def diagnose_leaving(pod: LivePod, now: datetime) -> Diagnosis | None:
    """A pod that should have ended by now: nobody on its node says so, and no replacement can start."""
    until = datetime.fromisoformat(str(pod.body["metadata"]["deletionTimestamp"]))
    if (now - until).total_seconds() < _LATE_SECONDS:
        return None
    node = _node(pod)
    return Diagnosis(
        Reason.NODE_LOST,
        f"pod {pod.name} should have ended by {pod.body['metadata']['deletionTimestamp']}, but node {node} has not"
        f" confirmed it; it is replaced once it is gone: see kubectl describe node {node}; if the machine is off for"
        f" good, kubectl delete node {node}, or kubectl delete pod {pod.name} --force",
    )


def last_failure(pod: LivePod) -> str | None:
    """How a container of a pod that serves failed before its restart; None if none did."""
    for container in pod.containers:
        ended = (container.get("lastState") or {}).get("terminated")
        if not ended or ended.get("exitCode") == 0:
            continue
        where = _where(pod, container)
        when = f" at {ended['finishedAt']}" if ended.get("finishedAt") else ""
        return f"before its restart{when} {_ended(where, ended, None).message}"
    return None


def _ended_by_node(pod: LivePod) -> Diagnosis:
    """The kubelet gave the pod up; the StatefulSet controller replaces it."""
    reason, message = str(pod.status["reason"]), quoted(str(pod.status.get("message", "")))
    advice = (
        "the node cannot give it its devices: check the device plugin there"
        if reason.startswith(("UnexpectedAdmissionError", "OutOf"))
        else "if it happens again, request what the engine uses (ephemeral storage, memory) in podOverrides, so that"
        " it is evicted last"
        if reason == "Evicted"
        else f"see kubectl describe node {_node(pod)}"
    )
    return Diagnosis(
        Reason.EVICTED,
        f"pod {pod.name} was stopped by node {_node(pod)} ({reason}: {message}) and is replaced; {advice}",
    )


def _lost_node(pod: LivePod) -> Diagnosis | None:
    """The node controller takes Ready away from the pods of a silent node and leaves all else as last reported."""
    if pod.condition("ContainersReady").get("status") != "True" or pod.condition("Ready").get("status") != "False":
        return None
    if (pod.body.get("spec") or {}).get("readinessGates"):
        return None
    node = _node(pod)
    return Diagnosis(
        Reason.NODE_LOST,
        f"pod {pod.name} was ready, but its node {node} stopped reporting: see kubectl describe node {node}; the pod is"
        " replaced once the node is back or has been deleted",
    )


def _node(pod: LivePod) -> str:
    return str((pod.body.get("spec") or {}).get("nodeName") or "of the pod")


def _gates(pod: LivePod) -> str:
    return ", ".join(str(gate.get("name")) for gate in (pod.body.get("spec") or {}).get("schedulingGates") or ())


def _unschedulable(pod: LivePod, words: str) -> Diagnosis:
    message = quoted(words)
    resource = _MISSING_DEVICE.search(message)
    if resource:
        return Diagnosis(
            Reason.WAITING_FOR_GPU,
            f"pod {pod.name} waits for {resource[1]}: {message}; free devices, add nodes, or lower replicas or"
            " perReplica",
        )
    plain = _MISSING.search(message)
    if "persistentvolumeclaim" in message.lower() or "persistent volume" in message.lower():
        advice = "check the claims that model.source, model.cache and podOverrides name, and their storage class"
        return Diagnosis(Reason.UNSCHEDULABLE, f"pod {pod.name} cannot be scheduled: {message}; {advice}")
    advice = (
        f"use larger nodes, or lower the engine container's {plain[1]} request in podOverrides"
        if plain
        else "check the accelerator's node labels, tolerations and podOverrides"
    )
    return Diagnosis(Reason.UNSCHEDULABLE, f"pod {pod.name} cannot be scheduled: {message}; {advice}")


def _container(pod: LivePod, status: Mapping[str, Any], log: ContainerLog | None) -> Diagnosis | None:
    name = str(status.get("name", ""))
    state = status.get("state") or {}
    waiting = state.get("waiting") or {}
    where = _where(pod, status)
    reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
    if reason in _PULL:
        return Diagnosis(
            Reason.IMAGE_PULL_FAILED,
            f"{where}: image {status.get('image')} cannot be pulled ({reason}: {quoted(message)});"
            " check engine.image and engine.imagePullSecrets",
        )
    if reason in _CONFIG:
        return Diagnosis(
            Reason.CONFIG_MISSING,
            f"{where} cannot be started ({reason}: {quoted(message)}); check the Secrets, ConfigMaps and claims that"
            " the spec names",
        )
    ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated")
    if not ended or (ended.get("exitCode") == 0 and int(status.get("restartCount", 0)) < _QUIET_EXITS):
        return None
    return _ended(where, ended, log if log and log.container == name else None)


def _where(pod: LivePod, status: Mapping[str, Any]) -> str:
    name = str(status.get("name", ""))
    return f"pod {pod.name}" + ("" if name == names.ENGINE_CONTAINER else f", container {name}")


def _ended(where: str, ended: Mapping[str, Any], log: ContainerLog | None) -> Diagnosis:
    # Without the number of restarts: the message would change, and be written, at each one.
    times = f"exited with code {ended.get('exitCode')}"
    if ended.get("reason") == "OOMKilled":
        return Diagnosis(
            Reason.OUT_OF_MEMORY,
            f"{where} was OOM-killed, host memory ({times}); raise the engine container's memory limit in podOverrides",
        )
    texts = [str(ended.get("message", "")), log.text if log else ""]
    for text in texts:
        if told := telling_line(text):
            return Diagnosis(told.reason, f"{where} {times}: {told.line}; {told.advice}")
    last = last_error(texts[1] or texts[0])
    return Diagnosis(
        Reason.CRASH_LOOP,
        f"{where} {times}"
        + (f": {last}" if last else "")
        + f"; see kubectl logs {where.split()[1].rstrip(',')} --previous",
        words=bool(log),
    )
