"""The ground: Kubernetes objects as values, and the table of their kinds; known to every other package."""

from reasoningpool.objects.keys import Manifest, ObjectKey
from reasoningpool.objects.kinds import KINDS, Availability, Kind, Kinds
from reasoningpool.objects.owners import controller_of, controller_uid, ordinal
from reasoningpool.objects.redaction import redacted
from reasoningpool.objects.text import shorten
from reasoningpool.objects.timestamps import timestamp

__all__ = [
    "KINDS",
    "Availability",
    "Kind",
    "Kinds",
    "Manifest",
    "ObjectKey",
    "controller_of",
    "controller_uid",
    "ordinal",
    "redacted",
    "shorten",
    "timestamp",
]
