"""Who owns which fields of an object, and how fields pass from one manager to another without being written.

Server-side apply removes a field that its last owner no longer sends. So whoever sends less than it owns together
with others must become the only owner first; that is a change of `metadata.managedFields` alone, the way kubectl
itself moves objects from client-side to server-side apply.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reasoningpool.api import names
from reasoningpool.objects import Manifest

Fields = dict[str, Any]
_REPLICAS = "f:replicas"


def is_applied(live: Mapping[str, Any]) -> bool:
    """Whether the operator has applied it: one of its two managers owns fields."""
    managers = (names.FIELD_MANAGER, names.SCALE_FIELD_MANAGER)
    return any(_is_apply(entry, manager) for entry in _entries(live) for manager in managers)


def is_held(live: Mapping[str, Any]) -> bool:
    """Whether the operator has given a pod the pool as an owner and has not taken it off again."""
    return any(_is_apply(entry, names.HOLD_FIELD_MANAGER) and _fields(entry) for entry in _entries(live))


def is_entangled(live: Mapping[str, Any]) -> bool:
    """Whether the scale manager owns more than the number: a creation in three steps has not come to its end."""
    return any(
        _is_apply(entry, names.SCALE_FIELD_MANAGER) and _fields(entry) != {"f:spec": {_REPLICAS: {}}}
        for entry in _entries(live)
    )


def disentangled(live: Mapping[str, Any]) -> list[Manifest] | None:
    """The managedFields in which the main manager has all that the scale manager owns but the number."""
    return _moved(live, lambda entry: _is_apply(entry, names.SCALE_FIELD_MANAGER), ())


def taken_over(live: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> list[Manifest] | None:
    """The managedFields in which the main manager has what others own under these paths; None if that is nothing.

    Numbers of replicas, and what belongs to status or scale subresources, stay where they are.
    """
    found: list[Manifest] | None = None
    for path in paths:
        source = live if found is None else {**live, "metadata": {**live["metadata"], "managedFields": found}}
        fields = tuple(f"f:{step}" for step in path)
        found = _moved(source, lambda entry: not _is_apply(entry, names.FIELD_MANAGER), fields) or found
    return found


def _moved(
    live: Mapping[str, Any], is_source: Callable[[Manifest], bool], path: tuple[str, ...]
) -> list[Manifest] | None:
    entries = [copy.deepcopy(entry) for entry in _entries(live)]
    gained: Fields = {}
    for entry in entries:
        if entry.get("subresource") or not is_source(entry):
            continue
        fields = _fields(entry)
        taken = _take(fields, path)
        if live.get("kind") == "StatefulSet" and (number := _take(taken, ("f:spec", _REPLICAS))):
            _merge(fields, number)
        _merge(gained, taken)
        entry["fieldsV1"] = fields
    if not gained:
        return None
    kept = [entry for entry in entries if _fields(entry) or entry.get("subresource")]
    main = next((entry for entry in kept if _is_apply(entry, names.FIELD_MANAGER)), None)
    if main is None:
        main = {
            "manager": names.FIELD_MANAGER,
            "operation": "Apply",
            "apiVersion": live["apiVersion"],
            "fieldsType": "FieldsV1",
            "fieldsV1": {},
        }
        kept.append(main)
    _merge(main["fieldsV1"], gained)
    return kept


def _take(fields: Fields, path: tuple[str, ...]) -> Fields:
    """Cut out what is under a path, and answer it with the path above it; nothing if there is nothing."""
    if not path:
        whole = dict(fields)
        fields.clear()
        return whole
    first, rest = path[0], path[1:]
    if first not in fields:
        return {}
    if not rest:
        return {first: fields.pop(first)}
    taken = _take(fields[first], rest)
    if taken and not fields[first]:
        del fields[first]
    return {first: taken} if taken else {}


def _merge(target: Fields, source: Mapping[str, Any]) -> None:
    for name, value in source.items():
        _merge(target.setdefault(name, {}), value)


def _entries(live: Mapping[str, Any]) -> list[Manifest]:
    return live["metadata"].get("managedFields") or []


def _fields(entry: Mapping[str, Any]) -> Fields:
    found: Fields = entry.get("fieldsV1") or {}
    return found


def _is_apply(entry: Mapping[str, Any], manager: str) -> bool:
    return entry["manager"] == manager and entry["operation"] == "Apply" and not entry.get("subresource")
