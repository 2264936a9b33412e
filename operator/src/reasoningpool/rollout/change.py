"""What a new pod template changes, in words, for status and events.

Values of environment variables are never shown, references to Secrets only by the variable's name, and values
of arguments only where they are known to hold no secret. The
old template is usually a live one, with fields filled in by the server: what the new one does not mention
counts as changed only where a user can have set it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.scalars import amount
from reasoningpool.objects import shorten
from reasoningpool.rollout.revision import ANNOTATION_TEMPLATE
from reasoningpool.vllm import argument_name, shows_value

_SHOWN: Final = 5
_WIDTH: Final = 80
_ENGINE_FIELDS: Final = {
    "startupProbe": "startup probe",
    "readinessProbe": "readiness probe",
    "livenessProbe": "liveness probe",
    "lifecycle": "preStop",
    "securityContext": "container security context",
    "envFrom": "envFrom",
    "ports": "ports",
    "imagePullPolicy": "image pull policy",
    "command": "command",
}
_POD_FIELDS: Final = {
    "terminationGracePeriodSeconds": "grace period",
    "nodeSelector": "node selector",
    "affinity": "affinity",
    "tolerations": "tolerations",
    "topologySpreadConstraints": "topology spread",
    "securityContext": "pod security context",
    "serviceAccountName": "service account",
    "automountServiceAccountToken": "service account token",
    "runtimeClassName": "runtime class",
    "priorityClassName": "priority class",
    "schedulerName": "scheduler",
    "imagePullSecrets": "image pull secrets",
    "enableServiceLinks": "service links",
}
_MODEL: Final = "model"
_SCALARS: Final = (str, int, float, bool)


def describe_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first differences of two pod templates in words."""
    changes = list(_changes(old, new)) or ["details of the pod"]
    more = len(changes) - _SHOWN
    return "; ".join(changes[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def waiting_change(settled: Mapping[str, Any], rendered: Mapping[str, Any]) -> str | None:
    """What a settled StatefulSet holds back until its user's next change, None if it is what was rendered."""
    was, now = ((m["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE) for m in (settled, rendered))
    if was == now:
        return None
    return describe_change(settled["spec"]["template"], rendered["spec"]["template"])


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = old["spec"], new["spec"]
    was, now = _by(before.get("containers"), "name"), _by(after.get("containers"), "name")
    yield from _engine(was.pop(names.ENGINE_CONTAINER, {}), now.pop(names.ENGINE_CONTAINER, {}))
    yield from _named("container", was, now)
    for what, field in (("init container", "initContainers"), ("volume", "volumes")):
        yield from _named(what, _by(before.get(field), "name"), _by(after.get(field), "name"))
    yield from _listed(before, after, _POD_FIELDS)
    for field in ("labels", "annotations"):
        marks = (old.get("metadata") or {}).get(field) or {}, (new.get("metadata") or {}).get(field) or {}
        yield from _marks(field[:-1], *marks)


def _engine(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from _value("image", old.get("image"), new.get("image"))
    yield from _arguments(old.get("args") or (), new.get("args") or ())
    yield from _named("variable", _by(old.get("env"), "name"), _by(new.get("env"), "name"))
    for kind in ("requests", "limits"):
        was = (old.get("resources") or {}).get(kind) or {}
        now = (new.get("resources") or {}).get(kind) or {}
        for name in sorted(was.keys() | now.keys()):
            if name not in was or name not in now or amount(was[name]) != amount(now[name]):
                yield from _value(f"{name} {kind[:-1]}", was.get(name), now.get(name))
    yield from _named("mount", _by(old.get("volumeMounts"), "mountPath"), _by(new.get("volumeMounts"), "mountPath"))
    yield from _listed(old, new, _ENGINE_FIELDS)


def _arguments(old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    was, now = _flags(old), _flags(new)
    for flag in dict.fromkeys((*now, *was)):
        if was.get(flag) == now.get(flag):
            continue
        what = f"argument {flag}" if flag.startswith("-") else flag
        if flag == _MODEL or shows_value(flag):
            yield from _value(what, was.get(flag), now.get(flag))
        else:
            yield f"{what} " + ("added" if flag not in was else "removed" if flag not in now else "changed")


def _flags(arguments: Iterable[str]) -> dict[str, str]:
    """Arguments by flag; the first without a dash is the model, others belong to the flag before them."""
    flags: dict[str, str] = {}
    last = _MODEL
    for argument in arguments:
        if argument.startswith("-"):
            last = argument_name(argument)
            flags[last] = argument[len(last) :].removeprefix("=")
        else:
            flags[last] = f"{flags[last]} {argument}".strip() if last in flags else argument
    return flags


def _value(what: str, old: object, new: object) -> Iterator[str]:
    """`what old -> new`, with a flag that has no value shown as set."""
    if old == new:
        return
    if old is None:
        yield f"{what} {_text(new)} added".replace("  ", " ")
    elif new is None:
        yield f"{what} removed"
    else:
        yield f"{what} {_text(old)} -> {_text(new)}"


def _named(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Entries of a list that is merged by name: only the names are shown."""
    for name in dict.fromkeys((*new, *old)):
        if name not in old:
            yield f"{what} {name} added"
        elif name not in new:
            yield f"{what} {name} removed"
        elif not _covers(old[name], new[name]):
            yield f"{what} {name} changed"


def _marks(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*new, *old)):
        if name == names.ANNOTATION_REVISION or old.get(name) == new.get(name):
            continue
        yield f"{what} {name} " + ("added" if name not in old else "removed" if name not in new else "changed")


def _listed(old: Mapping[str, Any], new: Mapping[str, Any], fields: Mapping[str, str]) -> Iterator[str]:
    for field, words in fields.items():
        was, now = old.get(field), new.get(field)
        if now is None and was is None:
            continue
        if isinstance(was, _SCALARS) and isinstance(now, _SCALARS):
            yield from _value(words, was, now)
        elif now is None or was is None or was != now:
            yield f"{words} " + ("added" if was is None else "removed" if now is None else "changed")


def _covers(old: object, new: object) -> bool:
    """Whether everything the new value says holds in the old one, which may say more by the server's defaults."""
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return all(name in old and _covers(old[name], value) for name, value in new.items())
    if isinstance(new, (list, tuple)) and isinstance(old, (list, tuple)):
        return len(old) == len(new) and all(_covers(*pair) for pair in zip(old, new, strict=True))
    return bool(old == new)


def _by(entries: Iterable[Mapping[str, Any]] | None, key: str) -> dict[str, Any]:
    return {str(entry[key]): entry for entry in entries or ()}


def _text(value: object) -> str:
    return shorten(str(value), _WIDTH)
