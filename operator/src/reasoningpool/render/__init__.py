"""From a tier with everything decided and its sizing to Kubernetes manifests. Pure: values in, dicts out."""

from reasoningpool.render.arguments import engine_arguments
from reasoningpool.render.change import describe_change, waiting_change
from reasoningpool.render.metadata import PoolIdentity
from reasoningpool.render.pod_overrides import OverrideProblem, check_pod_overrides
from reasoningpool.render.revision import pod_intent, revision_of, settle, sizing_key
from reasoningpool.render.tier import Rendered, render_pool, render_tier
from reasoningpool.render.volumes import check_chat_template

__all__ = [
    "OverrideProblem",
    "PoolIdentity",
    "Rendered",
    "check_chat_template",
    "check_pod_overrides",
    "describe_change",
    "engine_arguments",
    "pod_intent",
    "render_pool",
    "render_tier",
    "revision_of",
    "settle",
    "sizing_key",
    "waiting_change",
]
