"""The ground: Kubernetes objects as values, known to every other package."""

from reasoningpool.objects.keys import Manifest, ObjectKey
from reasoningpool.objects.redaction import redacted

__all__ = ["Manifest", "ObjectKey", "redacted"]
