"""Identities of Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

# An object of the Kubernetes API as a dict, rendered or read.
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Identity of one Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> ObjectKey:
        """The key of a manifest or of an object read from the API."""
        meta = manifest["metadata"]
        return cls(manifest["apiVersion"], manifest["kind"], meta.get("namespace", ""), meta["name"])

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
