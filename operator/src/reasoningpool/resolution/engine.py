"""Which vLLM server a tier runs: image, version, KV cache type, parsers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Findings
from reasoningpool.api.scalars import parse_quantity
from reasoningpool.api.spec_engine import EngineSpec
from reasoningpool.api.spec_model import PullPolicy
from reasoningpool.api.spec_tier import TierSpec
from reasoningpool.resolution import defaults
from reasoningpool.resolution.types import EffectiveAccelerator, EffectiveEngine
from reasoningpool.sizing.constants import FP8_FROM_CAPABILITY
from reasoningpool.sizing.types import EngineVersion, KVCacheDType
from reasoningpool.sizing.units import human_bytes
from reasoningpool.vllm import check_extra_arguments

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
_FP8: Final = frozenset({KVCacheDType.FP8, KVCacheDType.FP8_E5M2})


@dataclass(frozen=True, slots=True)
class MergedEngine:
    """A tier's engine merged over the pool's, and where each field was written."""

    spec: EngineSpec
    tier: str
    tier_path: str
    own_fields: frozenset[str]

    def written(self, attribute: str, findings: Findings) -> Findings:
        """Where to report about a field: as the tier's if the tier has it, else as the pool's."""
        return findings.of(self.tier if attribute in self.own_fields else None)

    def path(self, attribute: str) -> str:
        """Path of a field in the user's file."""
        name = EngineSpec.model_fields[attribute].alias or attribute
        return f"{self.tier_path}.engine.{name}" if attribute in self.own_fields else f"spec.engine.{name}"


def merge_engine(pool: EngineSpec | None, tier: TierSpec, tier_path: str) -> MergedEngine:
    """The tier's fields over the pool's; a field that is set replaces the whole field."""
    base = pool or EngineSpec()
    stated = tier.engine
    own = {
        name: getattr(stated, name) for name in type(base).model_fields if stated and getattr(stated, name) is not None
    }
    return MergedEngine(base.model_copy(update=own), tier.name, tier_path, frozenset(own))


def parse_version(text: str) -> EngineVersion | None:
    """A vLLM version out of a version field or an image tag.

    >>> parse_version("v0.33.0"), parse_version("0.32.0+cpu"), parse_version("latest")
    ((0, 33, 0), (0, 32, 0), None)
    """
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def version_of(engine: EngineSpec, image: str) -> EngineVersion | None:
    """The stated version, else what the image's tag says."""
    if engine.version:
        return parse_version(engine.version)
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return parse_version(tag)


def resolve_engine(
    merged: MergedEngine, accelerator: EffectiveAccelerator, findings: Findings, *, scaling: bool
) -> EffectiveEngine:
    """The engine with every field decided; `scaling` engines must go on publishing their metrics."""
    spec = merged.spec
    if spec.image is None and accelerator.is_cpu:
        merged.written("image", findings).error(
            merged.path("image"), "the CPU accelerator has no stock image: set an image with a CPU build of vLLM"
        )
    image = spec.image or defaults.ENGINE_IMAGE
    version = version_of(spec, image)
    if version is None:
        merged.written("version", findings).warning(
            merged.path("version"),
            f"the tag of image {image} does not name vLLM's version, so the arguments of"
            f" {defaults.ENGINE_IMAGE.rpartition(':')[2]} are assumed: set engine.version",
        )
    extra = spec.extra_args or ()
    merged.written("extra_args", findings).add(
        *check_extra_arguments(extra, version, path=merged.path("extra_args"), scaling=scaling)
    )
    if spec.kv_cache_memory is not None and spec.memory_utilization_percent is not None:
        merged.written("memory_utilization_percent", findings).warning(
            merged.path("memory_utilization_percent"), "has no effect, since kvCacheMemory states the KV cache's size"
        )
    if spec.kv_cache_memory is None and accelerator.is_cpu:
        merged.written("kv_cache_memory", findings).error(
            merged.path("kv_cache_memory"),
            "is required on CPU, such as 1Gi: there is no device memory to derive it from",
        )
    _check_rest(merged, accelerator, findings)
    return EffectiveEngine(
        image=image,
        image_pull_policy=spec.image_pull_policy or PullPolicy.IF_NOT_PRESENT,
        image_pull_secrets=spec.image_pull_secrets or (),
        version=version,
        kv_cache_dtype=_kv_cache_dtype(merged, accelerator, findings),
        kv_cache_memory_bytes=None if spec.kv_cache_memory is None else parse_quantity(spec.kv_cache_memory),
        memory_utilization_percent=spec.memory_utilization_percent or defaults.MEMORY_UTILIZATION_PERCENT,
        enforce_eager=accelerator.is_cpu if spec.enforce_eager is None else spec.enforce_eager,
        prefix_caching=spec.prefix_caching is not False,
        trust_remote_code=bool(spec.trust_remote_code),
        chat_template=spec.chat_template,
        api_key_secret_ref=spec.api_key_secret_ref,
        startup_timeout_seconds=spec.startup_timeout_seconds,
        extra_args=tuple(extra),
    )


def _check_rest(merged: MergedEngine, accelerator: EffectiveAccelerator, findings: Findings) -> None:
    """What the stated utilization leaves outside the engine's share must hold what vLLM does not count."""
    memory, percent = accelerator.facts.memory_bytes, merged.spec.memory_utilization_percent
    if memory is None or percent is None or merged.spec.kv_cache_memory is not None:
        return
    rest = memory * (100 - percent) // 100
    if rest < defaults.LEAST_REST_BYTES and not merged.spec.enforce_eager:
        merged.written("memory_utilization_percent", findings).warning(
            merged.path("memory_utilization_percent"),
            f"{percent} % leaves {human_bytes(rest)} of {accelerator.facts.product} for the CUDA context and graph"
            f" capture, which need about {human_bytes(defaults.LEAST_REST_BYTES)}: lower it, or set enforceEager",
        )


def _kv_cache_dtype(merged: MergedEngine, accelerator: EffectiveAccelerator, findings: Findings) -> KVCacheDType:
    """FP8 where the hardware has it, unless the spec says otherwise."""
    wanted = merged.spec.kv_cache_dtype
    capability = accelerator.facts.compute_capability
    has_fp8 = capability is not None and capability >= FP8_FROM_CAPABILITY
    if wanted is None:
        return KVCacheDType.FP8 if has_fp8 else KVCacheDType.AUTO
    if wanted not in _FP8 or has_fp8 or accelerator.is_cpu:
        return wanted
    path, written = merged.path("kv_cache_dtype"), merged.written("kv_cache_dtype", findings)
    shown = f"{accelerator.facts.product} (compute capability {_dotted(capability) if capability else 'unknown'})"
    if merged.spec.allow_unverified_kv_cache_dtype:
        written.warning(path, f"{wanted} is not known to work on {shown}", Reason.KV_DTYPE_UNSUPPORTED)
    else:
        written.error(
            path,
            f"{wanted} needs compute capability {_dotted(FP8_FROM_CAPABILITY)} or newer, which {shown} lacks:"
            " use BF16 or Auto, or set allowUnverifiedKVCacheDType",
            Reason.KV_DTYPE_UNSUPPORTED,
        )
    return wanted


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
