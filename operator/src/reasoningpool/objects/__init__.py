"""The ground: Kubernetes objects as values, known to every other package."""

from reasoningpool.objects.keys import Manifest, ObjectKey

__all__ = ["Manifest", "ObjectKey"]
