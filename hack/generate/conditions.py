"""docs/reference/conditions.md from `api/conditions.py`."""

from __future__ import annotations

from generate.markdown import code, page, table
from reasoningpool.api.conditions import ConditionType, Reason, ReasonGroup
from reasoningpool.planning.status.conditions import FOLDED

_SOURCE = "operator/src/reasoningpool/api/conditions.py"
_INTRO = {
    ReasonGroup.FAILURE: "Each comes with a Warning event; most wait for a person.",
    ReasonGroup.SPEC: "",
    ReasonGroup.PROGRESS: "Usually there is nothing to do; the message says what is awaited and until when at most.",
    ReasonGroup.OTHER: "[Verification of the sizing](../verification.md), the operator itself, and events.",
}


def conditions_reference() -> str:
    """Types of conditions, then reasons by group."""
    types = table(
        ("condition", "True means", "False keeps the pool from Ready"),
        ((code(kind), kind.meaning, _folded(kind)) for kind in ConditionType),
    )
    return page(
        _SOURCE,
        "Conditions and reasons",
        "\n`kubectl get rp` shows one reason per pool, `kubectl describe rp NAME` every condition with its message.",
        "\n## Conditions",
        types,
        *(_group(group) for group in ReasonGroup),
    )


def _folded(kind: ConditionType) -> str:
    if kind is ConditionType.READY:
        return ""
    return "yes" if kind in FOLDED else "no"


def _group(group: ReasonGroup) -> str:
    reasons = [reason for reason in Reason if reason.group is group]
    intro = f"\n{_INTRO[group]}\n" if _INTRO[group] else ""
    rows = ((code(reason), reason.meaning, reason.advice) for reason in reasons)
    return f"## {group}\n{intro}" + table(("reason", "meaning", "what to do"), rows)
