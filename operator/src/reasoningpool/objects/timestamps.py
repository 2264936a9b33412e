"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(moment: datetime) -> str:
    """A time in UTC to the second, such as 2026-01-31T09:30:00Z (`metav1.Time`). `moment` has a time zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
