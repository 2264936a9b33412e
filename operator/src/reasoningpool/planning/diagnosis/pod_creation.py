"""Pods that the API server refuses to create: its message, and what to do about each kind of refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from reasoningpool.objects import redacted, shorten
from reasoningpool.planning.observations import PodCreationFailure

MAX_MESSAGE: Final = 4096  # characters of an event that are looked at: whoever may create events may write it
_MOST_TEXT: Final = 700  # characters of the API server's words shown
_RETRY: Final = "the StatefulSet retries by itself within 17 minutes"


def _kind(pattern: str, advice: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.IGNORECASE), advice


# The messages are those of Kubernetes' own admission plugins, most specific first. A name that a message
# holds goes into the advice.
_ADVICE: Final = (
    _kind(
        r"failed quota: (?P<name>[^:\s]{1,253}): must specify",
        "quota {name} requires a value that the pod does not set; set it in podOverrides for the container named",
    ),
    _kind(
        r"exceeded quota: (?P<name>[^,\s]{1,253}), requested: (?P<what>[^\s=]{1,253})",
        "raise quota {name} ({what}), free some of it, or request less: replicas, accelerator.perReplica, or the"
        " containers' resources in podOverrides",
    ),
    _kind(
        r"(?P<what>[a-z0-9./-]{1,64}) (usage|max limit to request ratio) per (Container|Pod|PersistentVolumeClaim)",
        "a LimitRange of the namespace rejects this {what}; change the LimitRange, or the containers'"
        " resources in podOverrides",
    ),
    _kind(
        r"no PriorityClass with name (?P<name>\S{1,253}) was found",
        "create the PriorityClass {name}, or name another one in podOverrides.priorityClassName",
    ),
    _kind(
        r'violates PodSecurity "(?P<name>[^":]{1,64})',
        "the namespace enforces the Pod Security level {name}: set what the message names in"
        " podOverrides.securityContext, or label the namespace with a lower level",
    ),
    _kind(
        r"(error looking up service account|serviceaccount) \S",
        "create the ServiceAccount, or name another one in podOverrides.serviceAccountName",
    ),
    _kind(r"RuntimeClass", "install that RuntimeClass, or change podOverrides.runtimeClassName"),
    _kind(r"failed calling webhook", "an admission webhook is not responding; ask its owner to fix it"),
    _kind(
        r"admission webhook|ValidatingAdmissionPolicy",
        "an admission policy rejects the pod; satisfy it through podOverrides, or ask the policy's owner",
    ),
    _kind(r"persistentvolumeclaims? ", "correct model.cache.claimTemplate, or what the message names"),
    _kind(r" is invalid: ", "correct the field that the message names, most likely in podOverrides"),
)
_EVENT: Final = re.compile(r"Pod (?P<pod>\S{1,253}) in StatefulSet \S{1,253} failed error: (?P<message>.*)", re.DOTALL)


def creation_failure(event_message: str) -> PodCreationFailure:
    """The pod that a FailedCreate event of a StatefulSet names, and the API server's message without the frame."""
    whole = event_message[:MAX_MESSAGE]
    found = _EVENT.search(whole)
    pod, message = (found["pod"], found["message"]) if found else ("", whole)
    return PodCreationFailure(pod=pod, message=redacted(" ".join(message.split())))


def explain_missing_pod(failures: Iterable[PodCreationFailure], live: Iterable[str]) -> str | None:
    """Message and advice for the first pod that failed and does not exist; the same one while nothing changes."""
    there = set(live)
    absent = sorted((f for f in failures if f.pod not in there), key=lambda f: (len(f.pod), f.pod, f.message))
    if not absent:
        return None
    message = absent[0].message
    return f"{shorten(message, _MOST_TEXT)}; {_advice(message)}; {_RETRY}"


def _advice(message: str) -> str:
    for pattern, advice in _ADVICE:
        found = pattern.search(message)
        if found:
            return advice.format_map({name: text or "" for name, text in found.groupdict().items()})
    return "allow the pod, or change it with podOverrides"
