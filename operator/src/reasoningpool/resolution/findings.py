"""Collects what is wrong or doubtful while a pool is resolved."""

from __future__ import annotations

from reasoningpool.api.conditions import Reason
from reasoningpool.resolution.types import Finding, Severity


class Findings:
    """A list with two ways to add to it; the same finding is kept once."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def error(self, path: str, message: str, reason: Reason = Reason.INVALID_SPEC) -> None:
        """Something that keeps the spec from being accepted."""
        self._found[Finding(severity=Severity.ERROR, path=path, message=message, reason=reason)] = None

    def warning(self, path: str, message: str, reason: Reason = Reason.SPEC_WARNING) -> None:
        """Something the user should know."""
        self._found[Finding(severity=Severity.WARNING, path=path, message=message, reason=reason)] = None

    def all(self) -> tuple[Finding, ...]:
        """Everything found, in the order it was found."""
        return tuple(self._found)
