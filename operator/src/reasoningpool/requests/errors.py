"""What a capacity plan cannot be made from, in one line."""

from __future__ import annotations


class CapacityError(ValueError):
    """Input a plan cannot be made from; the message is complete for a user."""


class LogError(CapacityError):
    """A request log or metrics page that cannot be read; `line` is the line of the file, from 1."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
