"""Errors of the calculation: what is wrong, with which field, and what to write instead."""

from __future__ import annotations


class SizingError(ValueError):
    """An input the calculation cannot work with.

    `field` names the input in the words of the resource where one is known (`kvCacheMemory`,
    `perReplica`, ...), so that a caller can turn it into a field path.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class GeometryError(SizingError):
    """A `config.json` that does not describe a model; `field` is its key."""
