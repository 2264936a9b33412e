"""The ReasoningPool's status, as the operator writes it. Every key it sends is declared here, so none is pruned."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reasoningpool.api.base import ApiModel

Text = Annotated[str, Field(max_length=1024)]
LongText = Annotated[str, Field(max_length=4096)]
Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


class Condition(ApiModel):
    """A Kubernetes condition."""

    type: Annotated[str, Field(max_length=316)]
    """What the condition is about."""
    status: Annotated[str, Field(max_length=7, pattern="^(True|False|Unknown)$")]
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=128)]
    """One word for programs."""
    message: LongText
    """For people: what is wrong and what to do."""
    last_transition_time: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    """When status last changed."""
    observed_generation: Count | None = None
    """Generation of the spec the condition speaks of."""


class SizingStatus(ApiModel):
    """The calculation of one tier with every intermediate number; bytes are per device, tokens per replica."""

    kv_bytes_per_token: Bytes
    per_request_constant_bytes: Bytes
    weight_bytes_per_gpu: Bytes
    activation_bytes: Bytes
    graph_bytes: Bytes
    overhead_bytes: Bytes
    reserve_bytes: Bytes
    kv_pool_bytes: Bytes
    block_size: Count
    bytes_per_block: Bytes
    num_blocks: Count
    usable_kv_tokens: Bytes
    footprint_tokens: Bytes
    mean_resident_tokens: Bytes
    worst_case_num_seqs: Count
    max_num_seqs: Count
    limited_by: Text
    preempted_share_permille: Count
    max_model_len: Bytes
    max_num_batched_tokens: Bytes
    kv_cache_dtype: Text
    tensor_parallel_size: Count
    time_per_output_token_milliseconds: Count
    shutdown_timeout_seconds: Count
    pre_stop_seconds: Count
    termination_grace_period_seconds: Count
    startup_budget_seconds: Count


class EffectiveStatus(ApiModel):
    """What the operator uses where the spec says nothing."""

    model: Text
    revision: Text | None = None
    served_name: Text
    image: Text
    engine_version: Text | None = None
    accelerator: Text
    gpus_per_replica: Count
    kv_cache_dtype: Text
    reasoning_parser: Text | None = None
    tool_call_parser: Text | None = None
    policy: Text
    preemption_risk_permille: Count


class RolloutStatus(ApiModel):
    """The last change of what the pods run, and how far it is."""

    revision: Text
    """Hash of what the pods run."""
    change: LongText | None = None
    """What changed against the revision before."""
    waiting: LongText | None = None
    """What this version of the operator would render differently; applied with the next change of the spec."""
    updated_replicas: Count
    """Pods of this revision."""


class TierStatus(ApiModel):
    """One tier."""

    name: Text
    ready: Text
    """Ready and desired replicas, such as 2/3."""
    reason: Text
    """Why the tier is not ready, or Ready."""
    message: LongText | None = None
    """What is wrong and what to do."""
    desired_replicas: Count | None = None
    ready_replicas: Count | None = None
    endpoint: Text | None = None
    """URL of the tier's Service inside the cluster."""
    sizing: SizingStatus | None = None
    effective: EffectiveStatus | None = None
    rollout: RolloutStatus | None = None
    warnings: Annotated[tuple[LongText, ...], Field(max_length=32)] | None = None


class ReasoningPoolStatus(ApiModel):
    """Written by the operator only."""

    observed_generation: Count | None = None
    """Generation of the spec this status speaks of."""
    conditions: (
        Annotated[
            tuple[Condition, ...],
            Field(
                max_length=16,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
            ),
        ]
        | None
    ) = None
    model: Text | None = None
    """Served names, for the Model column."""
    tier_names: Text | None = None
    """Names of the tiers, for the Tiers column."""
    ready: Text | None = None
    """Ready and desired replicas of all tiers, such as 3/3."""
    reason: Text | None = None
    """Reason of the Ready condition."""
    gpus: Count | None = None
    """Devices all desired replicas need."""
    max_num_seqs: Text | None = None
    """Sequences per replica of each tier, such as reasoning 12, chat 64."""
    tiers: (
        Annotated[
            tuple[TierStatus, ...],
            Field(
                max_length=16,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            ),
        ]
        | None
    ) = None
