"""The accelerator and the vLLM server of a pool or tier."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, exactly_one
from reasoningpool.api.pod_placement import Toleration
from reasoningpool.api.scalars import (
    Bandwidth,
    EngineVersion,
    Flag,
    ImageReference,
    LabelKey,
    LabelValue,
    Memory,
    ObjectName,
    ResourceName,
    Seconds,
    SecretKey,
    free_text,
)
from reasoningpool.api.spec_model import PullPolicy, SecretKeyRef
from reasoningpool.sizing.constants import UTILIZATION_PERCENT_BOUNDS
from reasoningpool.sizing.types import KVCacheDType

_LEAST_PERCENT: Final = UTILIZATION_PERCENT_BOUNDS[0]
_MOST_PERCENT: Final = UTILIZATION_PERCENT_BOUNDS[1]


class CustomAccelerator(ApiModel):
    """An accelerator outside the catalog."""

    memory: Memory
    """Memory of one device as the driver reports it (for example torch.cuda.get_device_properties(0).total_memory)."""
    compute_capability: Annotated[str, Field(min_length=3, max_length=5, pattern=r"^[0-9]{1,2}\.[0-9]$")]
    """CUDA compute capability, such as "9.0"."""
    resource_name: ResourceName | None = None
    """Extended resource a pod requests. Default: nvidia.com/gpu."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] | None = None
    """Labels of the nodes that have it."""
    memory_bandwidth: Bandwidth | None = None
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

    inline: Annotated[str, free_text(65536, minimum=1)] | None = None
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
    kv_cache_memory: Memory | None = None
    """KV cache of one device, stated instead of derived (`--kv-cache-memory-bytes`). Required on CPU."""
    memory_utilization_percent: Annotated[int, Field(strict=True, ge=_LEAST_PERCENT, le=_MOST_PERCENT)] | None = None
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
    load_bandwidth: Bandwidth | None = None
    """Bytes per second at which weights are loaded or downloaded, for the start-up budget. Default: 250M."""
    startup_timeout_seconds: Seconds | None = None
    """Time a replica may take to become ready. Default: from the weights and loadBandwidth, at least 10 minutes."""
    extra_args: (
        Annotated[
            tuple[Annotated[str, free_text(4096, minimum=1)], ...],
            Field(max_length=64),
        ]
        | None
    ) = None
    """Further `vllm serve` arguments. Those the operator derives are refused with the field to use instead."""
