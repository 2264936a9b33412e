"""Kinds of children."""

from __future__ import annotations

# Kinds of children: what the planner prunes and the adapters watch.
OWNED_KINDS: tuple[tuple[str, str, str], ...] = (
    # apiVersion, kind, plural
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("v1", "Service", "services"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
)
