"""The request runtime inside vLLM's API server. See `middleware`."""

from reasoningpool_runtime.middleware import Middleware

__all__ = ["Middleware"]
__version__ = "0.1.0"
