"""The model of a pool or tier: identity, weights, parsers, cache."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from reasoningpool.api.base import ApiModel, Rule, exactly_one
from reasoningpool.api.scalars import (
    Flag,
    ImageReference,
    ModelId,
    ObjectName,
    ParserName,
    RelativePath,
    Revision,
    SecretKey,
    ServedName,
    Storage,
    free_text,
)
from reasoningpool.model.towers import Modality


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

    size: Storage
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
    config_json: Annotated[str, free_text(65536, minimum=2)] | None = None
    """Text of the model's config.json, for models outside the catalog; it wins over the catalog."""
    modalities: Annotated[tuple[Modality, ...], Field(min_length=1, max_length=3)] | None = None
    """What requests may contain. Default: all that the model can take. [Text] leaves the encoders of images and sound
    out (`--language-model-only`), which frees their weights and work space."""
    parsers: Parsers | None = None
    """Output parsers. Default: from the catalog."""
    cache: ModelCache | None = None
    """Where downloads and compiled kernels are kept."""
