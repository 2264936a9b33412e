"""Who owns an object, and which of a StatefulSet's pods it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reasoningpool.objects.keys import Manifest


def controller_of(manifest: Manifest) -> Mapping[str, Any] | None:
    """The owner reference of the object that controls this one."""
    references = manifest["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def controller_uid(manifest: Manifest) -> str | None:
    """Uid of the object that controls this one."""
    reference = controller_of(manifest)
    return None if reference is None else str(reference["uid"])


def ordinal(pod: str, stateful_set: str) -> int | None:
    """Which pod of a StatefulSet has this name, None for a name that it does not give.

    >>> ordinal("p-chat-2", "p-chat"), ordinal("p-chat-2", "p"), ordinal("p-chat-pods", "p-chat")
    (2, None, None)
    """
    text = pod.removeprefix(f"{stateful_set}-")
    return int(text) if text.isdecimal() else None
