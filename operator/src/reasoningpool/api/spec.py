"""The ReasoningPool's spec. The CRD is generated from these classes; their docstrings are what `kubectl explain` shows.

There are no defaults in the schema: an absent field means "the operator decides", the decision is
shown in `status.tiers[].effective`, and so a GitOps tool never sees a difference it did not make.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, at_most_one, exactly_one, unique
from reasoningpool.api.pod_overrides import PodOverrides, Toleration
from reasoningpool.api.scalars import (
    EngineVersion,
    Flag,
    ImageReference,
    LabelKey,
    LabelValue,
    Milliseconds,
    ModelId,
    ObjectName,
    ParserName,
    Percent,
    Permille,
    PositiveReplicas,
    PositiveTokens,
    RelativePath,
    Replicas,
    ResourceName,
    Revision,
    Seconds,
    SecretKey,
    ServedName,
    Size,
    TierName,
    Tokens,
)
from reasoningpool.sizing.types import ConcurrencyPolicy, KVCacheDType


def _list_map(*, minimum: int = 0, maximum: int, key: str = "name") -> Any:
    """A list whose entries are merged by a key, as server-side apply needs it."""
    return Field(
        min_length=minimum,
        max_length=maximum,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]},
    )


class PullPolicy(StrEnum):
    """When an image is pulled."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class SecretKeyRef(ApiModel):
    """A key of a Secret in the pool's namespace. The operator never reads its content."""

    name: ObjectName
    """Name of the Secret."""
    key: SecretKey
    """Key within the Secret."""


class HuggingFaceSource(ApiModel):
    """Weights downloaded from the Hugging Face hub by the engine."""

    token_secret_ref: SecretKeyRef | None = None
    """Access token for gated models, put into HF_TOKEN."""


class ClaimSource(ApiModel):
    """Weights on an existing PersistentVolumeClaim, mounted read-only."""

    claim_name: ObjectName
    """Name of the claim in the pool's namespace."""
    path: RelativePath | None = None
    """Directory of the model within the volume. Default: its root."""


class ImageSource(ApiModel):
    """Weights in an OCI image, mounted read-only (needs Kubernetes 1.33 and containerd 2.1, or newer)."""

    reference: ImageReference
    """Image reference, best with a digest."""
    pull_policy: PullPolicy | None = None
    """When the image is pulled. Default: IfNotPresent."""
    path: RelativePath | None = None
    """Directory of the model within the image. Default: its root."""


class ModelSource(ApiModel):
    """Where the weights come from; exactly one."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("hugging_face", "persistent_volume_claim", "image"),)

    hugging_face: HuggingFaceSource | None = None
    """The Hugging Face hub (the default)."""
    persistent_volume_claim: ClaimSource | None = None
    """An existing claim with the weights on it."""
    image: ImageSource | None = None
    """An OCI image with the weights in it."""


class Quantization(StrEnum):
    """Online quantization (`--quantization`); a checkpoint that is quantized already needs none."""

    FP8 = "FP8"
    NONE = "None"


class Parsers(ApiModel):
    """vLLM's output parsers, by vLLM's own names; `none` turns one off."""

    reasoning: ParserName | None = None
    """`--reasoning-parser`. Default: from the model catalog."""
    tool_call: ParserName | None = None
    """`--tool-call-parser`, rendered together with `--enable-auto-tool-choice`. Default: from the model catalog."""


class ClaimTemplate(ApiModel):
    """A claim of its own for every replica."""

    size: Size
    """Requested storage."""
    storage_class_name: ObjectName | None = None
    """Storage class. Default: the cluster's."""
    retain: Flag | None = None
    """Keep the claims when the pool or tier is removed. Default: false; a scale-down always keeps them."""


class ModelCache(ApiModel):
    """Where downloaded weights and compiled kernels are kept; exactly one. Default: lost with the pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("claim_name", "claim_template"),)

    claim_name: ObjectName | None = None
    """An existing claim shared by all replicas; it must be ReadWriteMany when there is more than one."""
    claim_template: ClaimTemplate | None = None
    """One claim per replica."""


class ModelSpec(ApiModel):
    """The model to serve."""

    id: ModelId
    """Hugging Face id. Models outside the catalog also need configJSON."""
    revision: Revision | None = None
    """Commit, tag or branch of the repository. Pin a commit in production."""
    served_name: ServedName | None = None
    """Name clients use. Default: the id's last part in lower case."""
    source: ModelSource | None = None
    """Where the weights come from. Default: the Hugging Face hub without a token."""
    quantization: Quantization | None = None
    """Online quantization. Default: what the checkpoint is."""
    config_json: Annotated[str, Field(min_length=2, max_length=65536)] | None = None
    """Text of the model's config.json, for models outside the catalog; it wins over the catalog."""
    parsers: Parsers | None = None
    """Output parsers. Default: from the catalog."""
    cache: ModelCache | None = None
    """Where downloads and compiled kernels are kept."""


class CustomAccelerator(ApiModel):
    """An accelerator outside the catalog."""

    memory: Size
    """Memory of one device as the driver reports it (for example torch.cuda.get_device_properties(0).total_memory)."""
    compute_capability: Annotated[str, Field(min_length=3, max_length=5, pattern=r"^[0-9]{1,2}\.[0-9]$")]
    """CUDA compute capability, such as "9.0"."""
    resource_name: ResourceName | None = None
    """Extended resource a pod requests. Default: nvidia.com/gpu."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] | None = None
    """Labels of the nodes that have it."""
    memory_bandwidth: Size | None = None
    """Memory bandwidth in bytes per second, for time estimates."""


class AcceleratorSpec(ApiModel):
    """The accelerators of one replica."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("product", "custom"),)

    product: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")] | None = None
    """Catalog name, such as H100-SXM-80GB, L4-24GB or CPU."""
    custom: CustomAccelerator | None = None
    """A device outside the catalog."""
    per_replica: Annotated[int, Field(strict=True, ge=1, le=64)] | None = None
    """Devices per replica, which is the tensor-parallel size; must divide the model's attention heads. Default: 1."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] | None = None
    """Default: the taint of the GPU resource itself."""


class ConfigMapKeyRef(ApiModel):
    """A key of a ConfigMap in the pool's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: SecretKey
    """Key within the ConfigMap."""


class ChatTemplate(ApiModel):
    """A chat template that replaces the model's own; exactly one."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one("inline", "config_map_ref"),)

    inline: Annotated[str, Field(min_length=1, max_length=65536)] | None = None
    """Jinja text, up to 64 Ki characters."""
    config_map_ref: ConfigMapKeyRef | None = None
    """A key of a ConfigMap, for longer ones."""


class EngineSpec(ApiModel):
    """The vLLM server. A tier's engine is merged over the pool's, field by field."""

    image: ImageReference | None = None
    """Image with vLLM in it. Default: the stock image of the version this operator was tested with."""
    image_pull_policy: PullPolicy | None = None
    """Default: IfNotPresent."""
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=8)] | None = None
    """Names of pull secrets."""
    version: EngineVersion | None = None
    """vLLM's version, when the image tag does not tell."""
    kv_cache_dtype: KVCacheDType | None = None
    """Type of KV cache elements. Default: FP8 where the accelerator has it, else what the checkpoint is (Auto)."""
    allow_unverified_kv_cache_dtype: Flag | None = None
    """Render kvCacheDType even where it is not known to work on the accelerator; a warning stays in status."""
    kv_cache_memory: Size | None = None
    """KV cache of one device, stated instead of derived (`--kv-cache-memory-bytes`). Required on CPU."""
    memory_utilization_percent: Annotated[int, Field(strict=True, ge=10, le=98)] | None = None
    """Share of device memory the engine may use (`--gpu-memory-utilization`). Default: 92."""
    enforce_eager: Flag | None = None
    """Do not capture CUDA graphs (`--enforce-eager`). Default: false; true on CPU."""
    prefix_caching: Flag | None = None
    """Reuse the KV cache of shared prompt prefixes. Default: true."""
    trust_remote_code: Flag | None = None
    """Run Python code from the model's repository (`--trust-remote-code`). Default: false."""
    chat_template: ChatTemplate | None = None
    """Default: the model's own."""
    api_key_secret_ref: SecretKeyRef | None = None
    """API key the engine asks for; it covers /v1 only, not /metrics and other paths."""
    load_bandwidth: Size | None = None
    """Bytes per second at which weights are loaded or downloaded, for the start-up budget. Default: 100Mi."""
    startup_timeout_seconds: Seconds | None = None
    """Time a replica may take to become ready. Default: from the weights and loadBandwidth, at least 10 minutes."""
    extra_args: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")], ...],
            Field(max_length=64),
        ]
        | None
    ) = None
    """Further `vllm serve` arguments. Those the operator derives are refused with the field to use instead."""


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

    cpu_memory: Size
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
    efforts: Annotated[tuple[EffortSpec, ...], _list_map(minimum=1, maximum=8)]
    """Budgets per effort."""
    token_distribution: Annotated[tuple[EffortDistribution, ...], _list_map(maximum=8, key="effort")] | None = None
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


class GatewayMode(StrEnum):
    """Which routing configuration is written."""

    INFERENCE_GATEWAY = "InferenceGateway"
    STANDALONE = "Standalone"
    NONE = "None"


class ParentRef(ApiModel):
    """A Gateway the routes attach to."""

    name: ObjectName
    """Name of the Gateway."""
    namespace: ObjectName | None = None
    """Default: the pool's namespace."""
    section_name: ObjectName | None = None
    """A listener of the Gateway. Default: all."""


class FailureMode(StrEnum):
    """What happens to requests while the endpoint picker is down."""

    FAIL_OPEN = "FailOpen"
    FAIL_CLOSE = "FailClose"


class GatewaySpec(ApiModel):
    """Routing to the tiers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.mode == 'InferenceGateway') == (has(self.parentRefs) && size(self.parentRefs) > 0)",
            holds=lambda self: (self.mode == GatewayMode.INFERENCE_GATEWAY) == bool(self.parent_refs),
            message="parentRefs are required for mode InferenceGateway and must be absent for the other modes",
            field=".parentRefs",
        ),
    )

    mode: GatewayMode
    """InferenceGateway, Standalone or None."""
    parent_refs: Annotated[tuple[ParentRef, ...], Field(max_length=8)] | None = None
    """Gateways the routes attach to."""
    failure_mode: FailureMode | None = None
    """Default: FailOpen."""


class MonitoringSpec(ApiModel):
    """Objects for the Prometheus operator."""

    pod_monitor: Flag | None = None
    """Write a PodMonitor per pool. Default: false."""
    rules: Flag | None = None
    """Write alert rules. Default: false."""


class ReasoningPoolSpec(ApiModel):
    """A model, its accelerators and one or more tiers that serve it."""

    RULES: ClassVar[tuple[Rule, ...]] = (unique("tiers", "name"),)

    model: ModelSpec
    """The model all tiers serve unless they name their own."""
    accelerator: AcceleratorSpec
    """The accelerators of every replica unless a tier names its own."""
    engine: EngineSpec | None = None
    """The vLLM server."""
    tiers: Annotated[tuple[TierSpec, ...], _list_map(minimum=1, maximum=16)]
    """Groups of replicas; each becomes a StatefulSet."""
    gateway: GatewaySpec | None = None
    """Routing to the tiers. Default: none."""
    monitoring: MonitoringSpec | None = None
    """Monitoring objects. Default: none."""
    suspend: Flag | None = None
    """Leave all objects of the pool as they are; nothing is changed or removed until it is false again."""
