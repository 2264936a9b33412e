"""A tier: workload, budgets, replicas, objectives."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, at_most_one, list_map, unique
from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.scalars import (
    Memory,
    Milliseconds,
    ModelId,
    Percent,
    Permille,
    PositiveReplicas,
    PositiveTokens,
    Replicas,
    Seconds,
    TierName,
    Tokens,
)
from reasoningpool.api.spec_engine import AcceleratorSpec, EngineSpec
from reasoningpool.api.spec_model import ModelSpec
from reasoningpool.sizing.types import ConcurrencyPolicy


class Workload(StrEnum):
    """What a tier is for: Reasoning thinks before it answers, Chat has thinking switched off."""

    REASONING = "Reasoning"
    CHAT = "Chat"


class EffortSpec(ApiModel):
    """Budgets of one effort; a request's `reasoning_effort` picks one."""

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the effort, such as low, medium or high."""
    thinking_tokens: Tokens
    """Most tokens of thinking."""
    answer_tokens: PositiveTokens
    """Most tokens of the answer."""
    share_percent: Percent | None = None
    """Share of requests with this effort; set it on all efforts, summing to 100, or on none (then all are equal)."""


class Quantiles(ApiModel):
    """Observed percentiles of a token count."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.p50 <= self.p90 && self.p90 <= self.p99",
            holds=lambda self: self.p50 <= self.p90 <= self.p99,
            message="must have p50 <= p90 <= p99",
        ),
    )

    p50: PositiveTokens
    """Median."""
    p90: PositiveTokens
    """90th percentile."""
    p99: PositiveTokens
    """99th percentile."""


class EffortDistribution(ApiModel):
    """Observed lengths of one effort's requests."""

    effort: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the effort."""
    prompt: Quantiles | None = None
    """Prompt tokens. Default: always the budget."""
    output: Quantiles | None = None
    """Thinking and answer tokens together. Default: always the budget."""


class ConcurrencySpec(ApiModel):
    """How many requests a replica takes at a time."""

    policy: ConcurrencyPolicy | None = None
    """WorstCase never preempts; Statistical (default) takes more and preempts at most preemptionRiskPermille."""
    preemption_risk_permille: Permille | None = None
    """Share of requests that may be preempted, in thousandths. Default: 10."""


class ScalingSpec(ApiModel):
    """Bounds and targets of the operator's own autoscaler."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda self: self.min_replicas <= self.max_replicas,
            message="minReplicas must not exceed maxReplicas",
            field=".minReplicas",
        ),
    )

    min_replicas: Replicas
    """Fewest replicas."""
    max_replicas: PositiveReplicas
    """Most replicas."""
    target_kv_usage_percent: Annotated[int, Field(strict=True, ge=10, le=100)] | None = None
    """KV usage to aim at. Default: 70."""
    scale_up_stabilization_seconds: Annotated[int, Field(strict=True, ge=0, le=3600)] | None = None
    """Default: 0."""
    scale_down_stabilization_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] | None = None
    """Default: 300."""


class Objectives(ApiModel):
    """Latency a tier should keep."""

    time_to_first_answer_token_seconds: Seconds | None = None
    """From arrival to the first token of the answer, thinking included."""
    time_per_output_token_milliseconds: Milliseconds | None = None
    """Between output tokens; it limits how many requests share a replica."""


class SpeculativeMethod(StrEnum):
    """vLLM's speculative decoding methods."""

    MTP = "MTP"
    EAGLE3 = "EAGLE3"
    NGRAM = "NGram"
    DRAFT_MODEL = "DraftModel"


class SpeculativeSpec(ApiModel):
    """Speculative decoding."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.model) == (self.method in ['EAGLE3', 'DraftModel'])",
            holds=lambda self: (
                (self.model is not None) == (self.method in {SpeculativeMethod.EAGLE3, SpeculativeMethod.DRAFT_MODEL})
            ),
            message="model is required for EAGLE3 and DraftModel and must be absent for MTP and NGram",
            field=".method",
        ),
    )

    method: SpeculativeMethod
    """How tokens are drafted."""
    tokens: Annotated[int, Field(strict=True, ge=1, le=16)]
    """Tokens drafted per step."""
    model: ModelId | None = None
    """Draft model, for EAGLE3 and DraftModel."""


class KVOffloadSpec(ApiModel):
    """Spill KV blocks of prompts to CPU memory. Thinking is not offloaded by vLLM's default."""

    cpu_memory: Memory
    """CPU memory of one replica for it; counted in the pod's memory."""


class RolloutSpec(ApiModel):
    """How pods are replaced when what they run changes."""

    max_unavailable: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    """Replicas that may be missing at once. Default: 1."""


def _shares_are_whole(shares: list[int | None]) -> bool:
    given = [share for share in shares if share is not None]
    return not given or (len(given) == len(shares) and sum(given) == 100)


class TierSpec(ApiModel):
    """A group of equal replicas with its own budgets."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.name != 'pods'",
            holds=lambda self: self.name != "pods",
            message="the name pods is taken by the Services that give pods their names; use another one",
            field=".name",
        ),
        unique("efforts", "name"),
        unique("token_distribution", "effort"),
        at_most_one("replicas", "scaling"),
        Rule(
            cel="self.workload != 'Chat' || self.efforts.all(e, e.thinkingTokens == 0)",
            holds=lambda self: self.workload != Workload.CHAT or all(e.thinking_tokens == 0 for e in self.efforts),
            message="a Chat tier has thinking switched off: set thinkingTokens to 0, or use workload Reasoning",
            field=".efforts",
        ),
        Rule(
            cel="self.efforts.all(e, !has(e.sharePercent)) || (self.efforts.all(e, has(e.sharePercent))"
            " && self.efforts.map(e, e.sharePercent).sum() == 100)",
            holds=lambda self: _shares_are_whole([e.share_percent for e in self.efforts]),
            message="set sharePercent on all efforts so that they sum to 100, or on none",
            field=".efforts",
        ),
        Rule(
            cel="!has(self.tokenDistribution) ||"
            " self.tokenDistribution.all(d, self.efforts.exists(e, e.name == d.effort))",
            holds=lambda self: {d.effort for d in self.token_distribution or ()} <= {e.name for e in self.efforts},
            message="every entry must name one of the tier's efforts",
            field=".tokenDistribution",
        ),
        Rule(
            cel="!has(self.defaultEffort) || self.efforts.exists(e, e.name == self.defaultEffort)",
            holds=lambda self: self.default_effort is None or self.default_effort in {e.name for e in self.efforts},
            message="must name one of the tier's efforts",
            field=".defaultEffort",
        ),
        Rule(
            cel="!has(self.sharedPrefixTokens) || self.sharedPrefixTokens <= self.promptTokens",
            holds=lambda self: (self.shared_prefix_tokens or 0) <= self.prompt_tokens,
            message="sharedPrefixTokens is a part of promptTokens and must not exceed it",
            field=".sharedPrefixTokens",
        ),
    )

    name: TierName
    """Name of the tier, lower-case letters and digits; pool and tier names together may have 44 characters."""
    workload: Workload
    """Reasoning or Chat."""
    prompt_tokens: PositiveTokens
    """Most tokens of a prompt, chat history included."""
    efforts: Annotated[tuple[EffortSpec, ...], list_map(minimum=1, maximum=8)]
    """Budgets per effort."""
    default_effort: (
        Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")] | None
    ) = None
    """Effort of requests that name none; needs the request runtime. Default: medium if there is one, else the first."""
    token_distribution: Annotated[tuple[EffortDistribution, ...], list_map(maximum=8, key="effort")] | None = None
    """Observed lengths, which make the Statistical policy exact. Default: every request uses its whole budget."""
    shared_prefix_tokens: Tokens | None = None
    """Prompt tokens all requests share, such as a system prompt; held once per replica."""
    concurrency: ConcurrencySpec | None = None
    """How many requests a replica takes."""
    replicas: Replicas | None = None
    """Fixed number. With neither replicas nor scaling: created with 1, then left to whoever scales the StatefulSet."""
    scaling: ScalingSpec | None = None
    """The operator's own autoscaler."""
    objectives: Objectives | None = None
    """Latency to keep."""
    speculative: SpeculativeSpec | None = None
    """Speculative decoding."""
    kv_offload: KVOffloadSpec | None = None
    """KV offload to CPU memory."""
    max_num_seqs: Annotated[int, Field(strict=True, ge=1, le=65_536)] | None = None
    """Explicit `--max-num-seqs`; wins over the derived one, with a warning when it is larger."""
    max_model_len: PositiveTokens | None = None
    """Explicit `--max-model-len`; wins over the derived one."""
    max_num_batched_tokens: Annotated[int, Field(strict=True, ge=1, le=1_048_576)] | None = None
    """Explicit `--max-num-batched-tokens`; wins over the derived one."""
    block_size: Annotated[int, Field(strict=True, ge=1, le=8192)] | None = None
    """Explicit `--block-size` in tokens. Default: the engine's."""
    accelerator: AcceleratorSpec | None = None
    """Replaces the pool's accelerator as a whole."""
    model: ModelSpec | None = None
    """Replaces the pool's model as a whole."""
    engine: EngineSpec | None = None
    """Merged over the pool's engine, field by field."""
    rollout: RolloutSpec | None = None
    """How pods are replaced."""
    pod_overrides: PodOverrides | None = None
    """Merged into the rendered pod by name; for what has no field of its own."""
