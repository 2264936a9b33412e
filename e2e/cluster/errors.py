"""What the local cluster tells a person when it cannot go on."""

from __future__ import annotations


class ClusterError(Exception):
    """Something that a person can act on; the message says what, where and what to do."""


class UnsupportedError(ClusterError):
    """This machine cannot run the profile (not root, not Linux, a namespace refused)."""
