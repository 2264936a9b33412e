"""Where things are mounted in the engine's container."""

from __future__ import annotations

import posixpath
from typing import Final

# Survives the container, and the pod too where spec.model.cache says so: weights and compiled kernels.
CACHE: Final = "/cache"
# Private to the pod and small.
HOME: Final = "/home/engine"
TEMPORARY: Final = "/tmp"  # noqa: S108 - a path in the container
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a path in the container
WEIGHTS: Final = "/models"
CHAT_TEMPLATE: Final = "/etc/reasoningpool/chat-template"
CHAT_TEMPLATE_NAME: Final = "template.jinja"
CHAT_TEMPLATE_FILE: Final = f"{CHAT_TEMPLATE}/{CHAT_TEMPLATE_NAME}"
# The request runtime: its package, its configuration, and what its processes tell each other.
RUNTIME: Final = "/opt/reasoningpool"
RUNTIME_CONFIG: Final = "/etc/reasoningpool/runtime"
RUNTIME_STATE: Final = f"{TEMPORARY}/reasoningpool-runtime"


def weights(path: str | None) -> str:
    """Directory of the model on mounted weights.

    >>> weights(None), weights("qwen/8b/")
    ('/models', '/models/qwen/8b')
    """
    return posixpath.normpath(posixpath.join(WEIGHTS, path or ""))
