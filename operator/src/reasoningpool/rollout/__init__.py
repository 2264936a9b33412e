"""When pods roll and what changes: revisions of pod templates and differences told in words. Pure."""

from reasoningpool.rollout.change import describe_change, waiting_change
from reasoningpool.rollout.revision import pod_intent, revision_of, running_max_num_seqs, settle, sizing_key

__all__ = [
    "describe_change",
    "pod_intent",
    "revision_of",
    "running_max_num_seqs",
    "settle",
    "sizing_key",
    "waiting_change",
]
