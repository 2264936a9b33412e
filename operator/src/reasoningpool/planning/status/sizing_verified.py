"""The condition `SizingVerified`: what the engines' KV pools say of all tiers' plans."""

from __future__ import annotations

from collections.abc import Iterable

from reasoningpool.api.conditions import ConditionStatus, ConditionType, Reason
from reasoningpool.planning.status.conditions import Condition
from reasoningpool.planning.verification.sizing import Verdict


def sizing_verified(verdicts: Iterable[Verdict]) -> Condition:
    """`SizingVerified` of the pool: False if any tier's is, else Unknown if any tier's is, else True."""
    known = tuple(verdicts)
    if not known:
        return Condition(
            ConditionType.SIZING_VERIFIED, ConditionStatus.UNKNOWN, Reason.NOT_VERIFIED, "no tier has a plan to verify"
        )
    for status in (ConditionStatus.FALSE, ConditionStatus.UNKNOWN):
        telling = [verdict for verdict in known if verdict.status is status]
        if telling:
            break
    else:
        telling = [min(known, key=lambda verdict: verdict.reason is not Reason.CORRECTED)]
        message = "; ".join(verdict.message for verdict in known)
        return Condition(ConditionType.SIZING_VERIFIED, ConditionStatus.TRUE, telling[0].reason, message)
    message = "; ".join(verdict.message for verdict in telling)
    return Condition(ConditionType.SIZING_VERIFIED, status, telling[0].reason, message)
