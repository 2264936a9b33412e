"""From a tier with everything decided and its sizing to Kubernetes manifests. Pure: values in, dicts out."""

from reasoningpool.render.arguments import engine_arguments
from reasoningpool.render.change import describe_change
from reasoningpool.render.metadata import PoolIdentity
from reasoningpool.render.revision import pod_intent, revision_of, settle
from reasoningpool.render.tier import Rendered, render_pool, render_tier

__all__ = [
    "PoolIdentity",
    "Rendered",
    "describe_change",
    "engine_arguments",
    "pod_intent",
    "render_pool",
    "render_tier",
    "revision_of",
    "settle",
]
