"""From a tier with everything decided and its sizing to Kubernetes manifests. Pure: values in, dicts out."""

from reasoningpool.render.metadata import PoolIdentity
from reasoningpool.render.pod.arguments import engine_arguments
from reasoningpool.render.pod.pod_overrides import check_pod_overrides
from reasoningpool.render.pod.volumes import check_chat_template
from reasoningpool.render.tier import Rendered, render_pool, render_tier

__all__ = [
    "PoolIdentity",
    "Rendered",
    "check_chat_template",
    "check_pod_overrides",
    "engine_arguments",
    "render_pool",
    "render_tier",
]
