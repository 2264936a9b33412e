"""A pool with everything decided: overrides merged, catalogs looked up, defaults applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reasoningpool.api.findings import Finding, errors_of, warnings_of
from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.pod_placement import Toleration
from reasoningpool.api.spec_engine import ChatTemplate
from reasoningpool.api.spec_model import ModelCache, ModelSource, PullPolicy, Quantization, SecretKeyRef
from reasoningpool.api.spec_runtime import OverBudget
from reasoningpool.api.spec_tier import KVOffloadSpec, SpeculativeSpec, Workload
from reasoningpool.sizing.types import AcceleratorFacts, EngineVersion, KVCacheDType, SizingInput


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveModel:
    """The model a tier serves; parsers are None where no flag is rendered."""

    id: str
    revision: str | None
    served_name: str
    source: ModelSource | None
    cache: ModelCache | None
    quantization: Quantization | None
    reasoning_parser: str | None
    tool_call_parser: str | None
    # Chat-template keyword that switches thinking off, such as enable_thinking; None if there is none.
    thinking_switch: str | None
    thinking_budget_enforceable: bool
    text_only: bool = False  # the encoders of other modalities are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveAccelerator:
    """The devices of one replica and where they are found.

    `node_labels` maps a node label to the values that are acceptable: one value is rendered as a node
    selector, several as a required node affinity. `resource_name` is None on CPU.
    """

    facts: AcceleratorFacts
    per_replica: int
    resource_name: str | None
    node_labels: Mapping[str, tuple[str, ...]]
    tolerations: tuple[Toleration, ...]

    @property
    def is_cpu(self) -> bool:
        """Whether the engine runs without a device."""
        return self.resource_name is None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveEngine:
    """The vLLM server of a tier; `version` is None where neither the field nor the image tag tells it."""

    image: str
    image_pull_policy: PullPolicy
    image_pull_secrets: tuple[str, ...]
    version: EngineVersion | None
    kv_cache_dtype: KVCacheDType
    kv_cache_memory_bytes: int | None
    memory_utilization_percent: int
    enforce_eager: bool
    prefix_caching: bool
    trust_remote_code: bool
    chat_template: ChatTemplate | None
    api_key_secret_ref: SecretKeyRef | None
    startup_timeout_seconds: int | None
    extra_args: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveRuntime:
    """The request runtime of a tier's pods: the image it is copied from, and what it is told."""

    image: str
    over_budget: OverBudget
    show_thinking: bool
    tenant_header: str | None
    default_effort: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveTier:
    """One tier ready to be sized and rendered; how many replicas it has is decided by planning.

    `path` is where it stands in the spec.
    """

    name: str
    path: str
    workload: Workload
    model: EffectiveModel
    accelerator: EffectiveAccelerator
    engine: EffectiveEngine
    speculative: SpeculativeSpec | None
    kv_offload: KVOffloadSpec | None
    block_size: int | None
    max_unavailable: int
    overrides: PodOverrides | None
    sizing_input: SizingInput
    runtime: EffectiveRuntime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePool:
    """A pool whose tiers can be planned. `findings` with an error means that `tiers` must not be used."""

    name: str
    namespace: str
    uid: str
    tiers: tuple[EffectiveTier, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps the spec from being accepted."""
        return errors_of(self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What the user should know."""
        return warnings_of(self.findings)
