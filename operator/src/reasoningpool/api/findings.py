"""What is wrong or doubtful about a pool: the one value in which every part says it, from the schema to the status.

A finding is routed by its `tier` and located by its `path`; nobody looks into its text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from typing_extensions import override

from reasoningpool.api.conditions import Reason


class Severity(StrEnum):
    """An error stops the pool from changing; a warning is shown and obeyed."""

    ERROR = "Error"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong or doubtful: where, why, and what to write instead.

    `path` is that of the field, such as `spec.tiers[0].engine.extraArgs[2]`, empty where no field is to blame.
    `tier` is the name of the tier that it concerns, None for one of the whole pool. `standalone` is set where
    `message` says itself what it is about; otherwise it is read after the path.
    """

    path: str
    message: str
    severity: Severity
    reason: Reason
    tier: str | None = None
    standalone: bool = False

    @override
    def __str__(self) -> str:
        return self.message if self.standalone or not self.path else f"{self.path}: {self.message}"

    @property
    def is_error(self) -> bool:
        """Whether it stops the pool from changing."""
        return self.severity is Severity.ERROR

    def under(self, path: str, *, tier: str | None = None) -> Finding:
        """The finding of a part, as one of the whole that has this part at `path`."""
        return replace(self, path=f"{path}.{self.path}" if self.path else path, tier=tier or self.tier)


def error(path: str, message: str, reason: Reason = Reason.INVALID_SPEC, *, tier: str | None = None) -> Finding:
    """Something that keeps the spec from being accepted."""
    return Finding(path=path, message=message, severity=Severity.ERROR, reason=reason, tier=tier)


def warning(
    path: str,
    message: str,
    reason: Reason = Reason.SPEC_WARNING,
    *,
    tier: str | None = None,
    standalone: bool = False,
) -> Finding:
    """Something the user should know, which stops nothing."""
    return Finding(
        path=path, message=message, severity=Severity.WARNING, reason=reason, tier=tier, standalone=standalone
    )


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What keeps a spec from being accepted."""
    return tuple(finding for finding in findings if finding.is_error)


def warnings_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What a user should know though nothing is stopped."""
    return tuple(finding for finding in findings if not finding.is_error)


class Findings:
    """Collects findings; the same one is kept once, in the order of discovery."""

    def __init__(self) -> None:
        self._tier: str | None = None
        self._found: dict[Finding, None] = {}

    def of(self, tier: str | None) -> Findings:
        """A view of this collection that makes every finding added through it one of that tier."""
        view = Findings()
        view._tier, view._found = tier, self._found
        return view

    def error(self, path: str, message: str, reason: Reason = Reason.INVALID_SPEC) -> None:
        """Something that keeps the spec from being accepted."""
        self.add(error(path, message, reason))

    def warning(self, path: str, message: str, reason: Reason = Reason.SPEC_WARNING) -> None:
        """Something the user should know."""
        self.add(warning(path, message, reason))

    def add(self, *findings: Finding) -> None:
        """Findings of other parts."""
        for finding in findings:
            self._found[finding if self._tier is None else replace(finding, tier=self._tier)] = None

    def all(self) -> tuple[Finding, ...]:
        """Everything found, in the order it was found."""
        return tuple(self._found)
