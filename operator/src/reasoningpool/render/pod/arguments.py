"""The engine's command line, from the tier and the plan.

Each argument is one token `--flag=value` in a fixed order. Values from typed fields cannot hold a
`$(VAR)` (their patterns exclude it). `extraArgs` come last and unchanged: `$(VAR)` in their values is
expanded by Kubernetes from the container's environment, `$$(VAR)` is left as `$(VAR)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.api.scalars import parse_quantity
from reasoningpool.api.spec_model import Quantization
from reasoningpool.api.spec_tier import SpeculativeMethod, SpeculativeSpec, Workload
from reasoningpool.render import paths
from reasoningpool.render.pod.runtime import runtime_arguments
from reasoningpool.resolution.types import EffectiveModel, EffectiveTier
from reasoningpool.sizing.types import EngineVersion, KVCacheDType, SizingPlan

COMMAND: Final = ("vllm", "serve")

# vLLM's names of the KV cache types (--kv-cache-dtype).
KV_CACHE_DTYPES: Final = {
    KVCacheDType.AUTO: "auto",
    KVCacheDType.BF16: "bfloat16",
    KVCacheDType.FP16: "float16",
    KVCacheDType.FP8: "fp8",
    KVCacheDType.FP8_E5M2: "fp8_e5m2",
}
_SPECULATIVE_METHODS: Final = {
    SpeculativeMethod.MTP: "mtp",
    SpeculativeMethod.EAGLE3: "eagle3",
    SpeculativeMethod.NGRAM: "ngram",
    SpeculativeMethod.DRAFT_MODEL: "draft_model",
}
# Field reports R04 and U01: what appeared or went with which version. An unknown version counts as new.
_SHUTDOWN_TIMEOUT_SINCE: Final = (0, 18, 0)
_ENABLE_REASONING_BEFORE: Final = (0, 9, 0)
_DISABLE_SPELLING_SINCE: Final = (0, 33, 0)


def drains_itself(version: EngineVersion | None) -> bool:
    """Whether the engine finishes running requests after SIGTERM (--shutdown-timeout)."""
    return version is None or version >= _SHUTDOWN_TIMEOUT_SINCE


def model_location(model: EffectiveModel) -> str:
    """What the engine is told to load: the Hugging Face id, or the directory the weights are mounted at.

    For weights from a claim or an image the id stays what the model is called; only where it is read changes.
    """
    source = model.source
    if source is not None and source.persistent_volume_claim is not None:
        return paths.weights(source.persistent_volume_claim.path)
    if source is not None and source.image is not None:
        return paths.weights(source.image.path)
    return model.id


def engine_arguments(tier: EffectiveTier, plan: SizingPlan) -> tuple[str, ...]:
    """Arguments of `vllm serve`, the model first; the same tier and plan give the same tuple."""
    return (
        model_location(tier.model),
        *_model(tier),
        *_limits(plan),
        *_memory(tier),
        *_serving(tier),
        *_lifecycle(tier, plan),
        *runtime_arguments(tier),
        *tier.engine.extra_args,
    )


def _model(tier: EffectiveTier) -> Iterator[str]:
    model, engine = tier.model, tier.engine
    if model.revision is not None and model_location(model) == model.id:
        yield f"--revision={model.revision}"
    yield f"--served-model-name={model.served_name}"
    if model.quantization is Quantization.FP8:
        yield "--quantization=fp8"
    if model.text_only:
        yield "--language-model-only"
    if engine.trust_remote_code:
        yield "--trust-remote-code"
    if engine.enforce_eager:
        yield "--enforce-eager"


def _limits(plan: SizingPlan) -> Iterator[str]:
    yield f"--max-num-seqs={plan.max_num_seqs}"
    yield f"--max-model-len={plan.max_model_len}"
    yield f"--max-num-batched-tokens={plan.max_num_batched_tokens}"
    yield f"--tensor-parallel-size={plan.tensor_parallel_size}"


def _memory(tier: EffectiveTier) -> Iterator[str]:
    engine = tier.engine
    yield f"--kv-cache-dtype={KV_CACHE_DTYPES[engine.kv_cache_dtype]}"
    if engine.kv_cache_memory_bytes is not None:
        yield f"--kv-cache-memory-bytes={engine.kv_cache_memory_bytes}"
    else:
        yield f"--gpu-memory-utilization={engine.memory_utilization_percent / 100:.2f}"
    if tier.block_size is not None:
        yield f"--block-size={tier.block_size}"
    if engine.prefix_caching:
        yield "--enable-prefix-caching"
    elif engine.version is None or engine.version >= _DISABLE_SPELLING_SINCE:
        yield "--disable-prefix-caching"
    else:
        yield "--no-enable-prefix-caching"
    if tier.kv_offload is not None:
        yield f"--kv-offloading-size={_gib(parse_quantity(tier.kv_offload.cpu_memory))}"
        yield "--kv-offloading-backend=native"
    if tier.speculative is not None:
        yield f"--speculative-config={_speculative(tier.speculative)}"


def _serving(tier: EffectiveTier) -> Iterator[str]:
    model, engine = tier.model, tier.engine
    yield "--host=0.0.0.0"
    yield f"--port={names.ENGINE_PORT}"
    if model.reasoning_parser is not None:
        if engine.version is not None and engine.version < _ENABLE_REASONING_BEFORE:
            yield "--enable-reasoning"
        yield f"--reasoning-parser={model.reasoning_parser}"
    if model.tool_call_parser is not None:
        yield "--enable-auto-tool-choice"
        yield f"--tool-call-parser={model.tool_call_parser}"
    if tier.workload is Workload.CHAT and model.thinking_switch is not None:
        yield f"--default-chat-template-kwargs={_json({model.thinking_switch: False})}"
    if engine.chat_template is not None:
        yield f"--chat-template={paths.CHAT_TEMPLATE_FILE}"


def _lifecycle(tier: EffectiveTier, plan: SizingPlan) -> Iterator[str]:
    if drains_itself(tier.engine.version):
        yield f"--shutdown-timeout={plan.shutdown_timeout_seconds}"


def _speculative(spec: SpeculativeSpec) -> str:
    config: dict[str, Any] = {"method": _SPECULATIVE_METHODS[spec.method], "num_speculative_tokens": spec.tokens}
    if spec.model is not None:
        config["model"] = spec.model
    return _json(config)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _gib(size: int) -> str:
    """Bytes in GiB, exact to a millionth and without trailing zeros.

    >>> _gib(64 * 2**30), _gib(3 * 2**29)
    ('64', '1.5')
    """
    return f"{size / 2**30:.6f}".rstrip("0").rstrip(".")
