"""The pool's last status, read once and typed.

The status is the operator's only memory, and anyone with the rights may write it: by hand, by a restore, by another
version of the operator. So nothing in it is trusted: what does not read as it was written is as if it were absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from reasoningpool.api.conditions import ConditionStatus, ConditionType, Reason
from reasoningpool.api.status import CorrectionStatus, VerifiedStatus
from reasoningpool.objects import Manifest

_Model = TypeVar("_Model", bound=BaseModel)
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousCondition:
    """A condition of a type that this version knows; `reason` is None for one that it does not know."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason | None
    message: str
    since: str | None  # lastTransitionTime, as it was written


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousTier:
    """A tier's entry of the last status; `body` is the whole entry, for a status that keeps it."""

    name: str
    desired_replicas: int = 0
    revision: str | None = None
    change: str | None = None
    verified: VerifiedStatus | None = None
    correction: CorrectionStatus | None = None
    body: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, body: Mapping[str, Any]) -> PreviousTier:
        """The entry as far as it can be read."""
        rollout = _mapping(body.get("rollout"))
        return cls(
            name=name,
            desired_replicas=_count(body.get("desiredReplicas")),
            revision=_text(rollout.get("revision")),
            change=_text(rollout.get("change")),
            verified=_model(VerifiedStatus, _mapping(body.get("sizing")).get("verified")),
            correction=_model(CorrectionStatus, body.get("correction")),
            body=body,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousStatus:
    """What the last status says; `body` is all of it, for a status that keeps it."""

    conditions: Mapping[ConditionType, PreviousCondition]
    tiers: Mapping[str, PreviousTier]
    body: Mapping[str, Any]

    @classmethod
    def of(cls, pool: Manifest) -> PreviousStatus:
        """The status of a pool, empty before there is one. Never raises, whatever stands in it."""
        body = _mapping(pool.get("status"))
        conditions = [found for entry in _entries(body.get("conditions")) if (found := _condition(entry)) is not None]
        tiers: dict[str, PreviousTier] = {}
        for entry in _entries(body.get("tiers")):
            name = _text(entry.get("name"))
            if name is not None and name not in tiers:
                tiers[name] = PreviousTier.of(name, entry)
        return cls(conditions={condition.type: condition for condition in conditions}, tiers=tiers, body=body)


def _condition(entry: Mapping[str, Any]) -> PreviousCondition | None:
    kind, status = _member(ConditionType, entry.get("type")), _member(ConditionStatus, entry.get("status"))
    if kind is None or status is None:
        return None
    return PreviousCondition(
        type=kind,
        status=status,
        reason=_member(Reason, entry.get("reason")),
        message=_text(entry.get("message")) or "",
        since=_time(entry.get("lastTransitionTime")),
    )


def _member(kind: type[_Word], value: object) -> _Word | None:
    return kind(value) if isinstance(value, str) and value in kind.__members__.values() else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _time(value: object) -> str | None:
    """A time as Kubernetes writes it; anything else would be refused when it is sent again."""
    try:
        return value if isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None else None
    except ValueError:
        return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _model(kind: type[_Model], value: object) -> _Model | None:
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None
