"""Pods that the API server refuses to create: its own words, and what to do about each kind of refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from reasoningpool.objects import redacted
from reasoningpool.planning.types import PodRefusal

MAX_WORDS: Final = 4096  # characters of an event that are looked at: whoever may create events may write it
_MOST_WORDS: Final = 700  # characters of the API server's words shown
_RETRY: Final = "the StatefulSet tries again by itself, 17 minutes after the last try at the latest"


def _kind(pattern: str, advice: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.IGNORECASE), advice


# The words are those of Kubernetes' own admission plugins, most specific first. A name that a message
# holds goes into the advice.
_ADVICE: Final = (
    _kind(
        r"failed quota: (?P<name>[^:\s]{1,253}): must specify",
        "quota {name} counts what the pod does not state: state it for the container named in podOverrides",
    ),
    _kind(
        r"exceeded quota: (?P<name>[^,\s]{1,253}), requested: (?P<what>[^\s=]{1,253})",
        "raise quota {name} ({what}), free some of it, or ask for less: replicas, accelerator.perReplica, or the"
        " containers' resources in podOverrides",
    ),
    _kind(
        r"(?P<what>[a-z0-9./-]{1,64}) (usage|max limit to request ratio) per (Container|Pod|PersistentVolumeClaim)",
        "a LimitRange of the namespace does not allow this {what}: change the LimitRange, or the containers'"
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
    _kind(r"failed calling webhook", "an admission webhook of the cluster does not answer: its owner must mend it"),
    _kind(
        r"admission webhook|ValidatingAdmissionPolicy",
        "a policy of the cluster refuses the pod: meet it with podOverrides, or ask whoever owns it",
    ),
    _kind(r"persistentvolumeclaims? ", "correct model.cache.claimTemplate, or what the message names"),
    _kind(r" is invalid: ", "correct the field that the message names, most likely in podOverrides"),
)
_TOLD: Final = re.compile(r"Pod (?P<pod>\S{1,253}) in StatefulSet \S{1,253} failed error: (?P<words>.*)", re.DOTALL)


def refusal_of(event_message: str) -> PodRefusal:
    """What a FailedCreate event of a StatefulSet tells: the pod, and the API server's words without the frame."""
    message = event_message[:MAX_WORDS]
    told = _TOLD.search(message)
    pod, words = (told["pod"], told["words"]) if told else ("", message)
    return PodRefusal(pod=pod, words=redacted(" ".join(words.split())))


def telling_refusal(refusals: Iterable[PodRefusal], live: Iterable[str]) -> str | None:
    """Words and advice for the first refused pod that does not exist; always the same one while nothing changes."""
    there = set(live)
    absent = sorted((r for r in refusals if r.pod not in there), key=lambda r: (len(r.pod), r.pod, r.words))
    if not absent:
        return None
    words = absent[0].words
    shown = words if len(words) <= _MOST_WORDS else words[: _MOST_WORDS - 3] + "..."
    return f"{shown}; {_advice(words)}; {_RETRY}"


def _advice(words: str) -> str:
    for pattern, advice in _ADVICE:
        found = pattern.search(words)
        if found:
            return advice.format_map({name: text or "" for name, text in found.groupdict().items()})
    return "allow the pod, or change it with podOverrides"
