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


class VerifiedStatus(ApiModel):
    """The smallest KV pool that a ready replica reports, beside the plan; tokens per replica."""

    num_blocks: Count
    """Blocks of the engine's KV pool, its null block included."""
    block_size: Count
    """Tokens of a block."""
    usable_kv_tokens: Bytes
    """Tokens that requests can hold."""
    planned_usable_kv_tokens: Bytes
    """What the plan in force counts on."""


class CorrectionStatus(ApiModel):
    """A KV pool that was smaller than planned, and what the tier was sized anew for; tokens per replica."""

    inputs: Text
    """Digest of what the spec says about the sizing; with another one the correction is void."""
    num_blocks: Annotated[int, Field(ge=1)]
    """Blocks that were reported, the engine's null block included."""
    block_size: Annotated[int, Field(ge=1)]
    """Tokens of a block."""
    usable_kv_tokens: Bytes
    """Tokens that requests can hold together."""
    planned_usable_kv_tokens: Bytes
    """What was planned before."""
    planned_max_num_seqs: Count
    """What was derived before."""
    max_num_seqs: Count | None = None
    """What the pods were rolled for; absent where they needed no roll."""


class SizingStatus(ApiModel):
    """The calculation of one tier with every intermediate number; bytes are per device, tokens per replica."""

    kv_bytes_per_token: Bytes
    """KV cache of one token."""
    per_request_constant_bytes: Bytes
    """KV cache of a request whatever its length: sliding windows, linear-attention state."""
    weight_bytes_per_gpu: Bytes
    """Weights, draft included."""
    activation_bytes: Bytes
    """Peak of activations while the largest batch runs."""
    graph_bytes: Bytes
    """CUDA graphs."""
    overhead_bytes: Bytes
    """Libraries and communication buffers."""
    reserve_bytes: Bytes
    """Safety margin of the memory model."""
    kv_pool_bytes: Bytes
    """KV cache of all requests together."""
    block_size: Count
    """Tokens of a block."""
    bytes_per_block: Bytes
    """KV cache of one block."""
    num_blocks: Count
    """Blocks of the KV pool, the engine's null block included."""
    usable_kv_tokens: Bytes
    """Tokens that requests can hold together."""
    footprint_tokens: Bytes
    """Most tokens of one request, in whole blocks."""
    mean_resident_tokens: Bytes
    """Tokens a running request holds on average."""
    worst_case_num_seqs: Count
    """Sequences that fit if every request is at its largest."""
    max_num_seqs: Count
    """`--max-num-seqs`."""
    limited_by: Text
    """What bound maxNumSeqs: KVCache, StateSlots, TimePerOutputToken, EngineCap or Explicit."""
    preempted_share_permille: Count
    """Share of requests expected to be preempted at full load, in thousandths."""
    max_model_len: Bytes
    """`--max-model-len`, in tokens."""
    max_num_batched_tokens: Bytes
    """`--max-num-batched-tokens`."""
    kv_cache_dtype: Text
    """Type of KV cache elements, never Auto once sized."""
    tensor_parallel_size: Count
    """`--tensor-parallel-size`."""
    time_per_output_token_milliseconds: Count
    """Estimated time between output tokens at full load."""
    shutdown_timeout_seconds: Count
    """Time running requests get to finish after SIGTERM."""
    pre_stop_seconds: Count
    """Time between the end of routing and SIGTERM."""
    termination_grace_period_seconds: Count
    """Time a pod gets to stop, preStop included."""
    startup_budget_seconds: Count
    """Time a replica may take to become ready."""
    verified: VerifiedStatus | None = None
    """What ready replicas report of their KV pool, beside the plan."""


class EffectiveStatus(ApiModel):
    """What the operator uses where the spec says nothing."""

    model: Text
    """Hugging Face id."""
    revision: Text | None = None
    """Revision of the model."""
    served_name: Text
    """Name clients use."""
    image: Text
    """Image of the engine."""
    engine_version: Text | None = None
    """vLLM's version, absent where it is not known."""
    accelerator: Text
    """Product of the catalog, or custom."""
    gpus_per_replica: Count
    """Devices of one replica; 0 on CPU."""
    kv_cache_dtype: Text
    """Type of KV cache elements, never Auto once sized."""
    reasoning_parser: Text | None = None
    """`--reasoning-parser`, absent where none is rendered."""
    tool_call_parser: Text | None = None
    """`--tool-call-parser`, absent where none is rendered."""
    policy: Text
    """WorstCase or Statistical."""
    preemption_risk_permille: Count
    """Most requests that may be preempted, in thousandths."""


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
    """Name of the tier."""
    ready: Text
    """Ready and desired replicas, such as 2/3."""
    reason: Text
    """Why the tier is not ready, or Ready."""
    message: LongText | None = None
    """What is wrong and what to do."""
    desired_replicas: Count | None = None
    """Replicas wanted."""
    ready_replicas: Count | None = None
    """Replicas that serve."""
    endpoint: Text | None = None
    """URL of the tier's Service inside the cluster."""
    sizing: SizingStatus | None = None
    correction: CorrectionStatus | None = None
    """What the tier was sized anew for, once a KV pool was found smaller than planned."""
    effective: EffectiveStatus | None = None
    rollout: RolloutStatus | None = None
    warnings: Annotated[tuple[LongText, ...], Field(max_length=32)] | None = None
    """What the user should know though the tier is served."""


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
    """What holds of the pool; Ready folds the others."""
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
    url: Text | None = None
    """Base URL of the pool's gateway inside the cluster, absent without one."""
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
    """One entry per tier."""
