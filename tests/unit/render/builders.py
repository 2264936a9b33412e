"""Builders of what rendering takes: a tier with everything decided, and its sizing.

Every builder gives a complete, valid value; keyword arguments replace fields.
"""

from __future__ import annotations

from typing import Any

from reasoningpool.api.pod_overrides import PodOverrides
from reasoningpool.api.pod_placement import TaintEffect, Toleration, TolerationOperator
from reasoningpool.api.spec_model import PullPolicy
from reasoningpool.api.spec_tier import Workload
from reasoningpool.model.geometry import Geometry
from reasoningpool.render import PoolIdentity, render_tier
from reasoningpool.resolution.types import EffectiveAccelerator, EffectiveEngine, EffectiveModel, EffectiveTier
from reasoningpool.sizing.types import (
    AcceleratorFacts,
    ConcurrencyPolicy,
    Effort,
    KVCacheDType,
    Limit,
    SizingInput,
    SizingPlan,
)

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}


def pool_identity(**changes: Any) -> PoolIdentity:
    return PoolIdentity(
        **({"name": "qwen", "namespace": "llm", "uid": "11111111-2222-3333-4444-555555555555"} | changes)
    )


def facts(**changes: Any) -> AcceleratorFacts:
    values: dict[str, Any] = {
        "product": "H100-SXM-80GB",
        "memory_bytes": 85_029_158_912,
        "compute_capability": (9, 0),
        "memory_bandwidth_bytes_per_s": 3.35e12,
    }
    return AcceleratorFacts(**(values | changes))


def model(**changes: Any) -> EffectiveModel:
    values: dict[str, Any] = {
        "id": "Qwen/Qwen3-8B",
        "revision": None,
        "served_name": "qwen3-8b",
        "source": None,
        "cache": None,
        "quantization": None,
        "reasoning_parser": "qwen3",
        "tool_call_parser": "hermes",
        "thinking_switch": "enable_thinking",
        "thinking_budget_enforceable": True,
    }
    return EffectiveModel(**(values | changes))


def accelerator(**changes: Any) -> EffectiveAccelerator:
    gpu = Toleration(key="nvidia.com/gpu", operator=TolerationOperator.EXISTS, effect=TaintEffect.NO_SCHEDULE)
    values: dict[str, Any] = {
        "facts": facts(),
        "per_replica": 1,
        "resource_name": "nvidia.com/gpu",
        "node_labels": {"nvidia.com/gpu.product": ("NVIDIA-H100-80GB-HBM3",)},
        "tolerations": (gpu,),
    }
    return EffectiveAccelerator(**(values | changes))


def cpu_accelerator(**changes: Any) -> EffectiveAccelerator:
    none = facts(product="CPU", memory_bytes=None, compute_capability=None, memory_bandwidth_bytes_per_s=None)
    values: dict[str, Any] = {"facts": none, "resource_name": None, "node_labels": {}, "tolerations": ()}
    return accelerator(**(values | changes))


def engine(**changes: Any) -> EffectiveEngine:
    values: dict[str, Any] = {
        "image": "vllm/vllm-openai:v0.33.0",
        "image_pull_policy": PullPolicy.IF_NOT_PRESENT,
        "image_pull_secrets": (),
        "version": (0, 33, 0),
        "kv_cache_dtype": KVCacheDType.FP8,
        "kv_cache_memory_bytes": None,
        "memory_utilization_percent": 92,
        "enforce_eager": False,
        "prefix_caching": True,
        "trust_remote_code": False,
        "chat_template": None,
        "api_key_secret_ref": None,
        "startup_timeout_seconds": None,
        "extra_args": (),
    }
    return EffectiveEngine(**(values | changes))


def sizing_input(**changes: Any) -> SizingInput:
    values: dict[str, Any] = {
        "accelerator": facts(),
        "tensor_parallel_size": 1,
        "geometry": Geometry.from_config(QWEN3_8B, None),
        "weight_bytes": 16_381_470_720,
        "kv_cache_dtype": KVCacheDType.FP8,
        "memory_utilization_permille": 920,
        "kv_cache_memory_bytes": None,
        "efforts": (Effort(name="high", prompt_tokens=8192, thinking_tokens=4096, answer_tokens=1024, share=1.0),),
        "policy": ConcurrencyPolicy.STATISTICAL,
        "preemption_risk_permille": 10,
    }
    return SizingInput(**(values | changes))


def tier(**changes: Any) -> EffectiveTier:
    """A reasoning tier on one H100. `overrides` may be given as in YAML (a dict)."""
    if isinstance(changes.get("overrides"), dict):
        changes["overrides"] = PodOverrides.model_validate(changes["overrides"])
    values: dict[str, Any] = {
        "name": "reasoning",
        "path": "spec.tiers[0]",
        "workload": Workload.REASONING,
        "model": model(),
        "accelerator": accelerator(),
        "engine": engine(),
        "speculative": None,
        "kv_offload": None,
        "block_size": None,
        "max_unavailable": 1,
        "overrides": None,
        "sizing_input": sizing_input(),
    }
    return EffectiveTier(**(values | changes))


def chat_tier(**changes: Any) -> EffectiveTier:
    return tier(**({"name": "chat", "workload": Workload.CHAT} | changes))


def cpu_tier(**changes: Any) -> EffectiveTier:
    """A tier on CPU with a stated KV pool."""
    stated = engine(kv_cache_memory_bytes=64 * 2**20, enforce_eager=True, kv_cache_dtype=KVCacheDType.AUTO)
    return tier(**({"accelerator": cpu_accelerator(), "engine": stated} | changes))


def sizing_plan(**changes: Any) -> SizingPlan:
    values: dict[str, Any] = {
        "kv_bytes_per_token": 73_728,
        "per_request_constant_bytes": 0,
        "weight_bytes_per_gpu": 16_381_470_720,
        "activation_bytes": 2 * 2**30,
        "graph_bytes": 2**30,
        "overhead_bytes": 2**30,
        "reserve_bytes": 2**30,
        "kv_pool_bytes": 50 * 2**30,
        "block_size": 16,
        "bytes_per_block": 16 * 73_728,
        "num_blocks": 45_511,
        "usable_kv_tokens": 728_160,
        "footprint_tokens": 13_344,
        "mean_resident_tokens": 10_000,
        "worst_case_num_seqs": 54,
        "max_num_seqs": 64,
        "limited_by": Limit.KV_CACHE,
        "preempted_share_permille": 8,
        "max_model_len": 13_344,
        "max_num_batched_tokens": 8192,
        "kv_cache_dtype": KVCacheDType.FP8,
        "tensor_parallel_size": 1,
        "time_per_output_token_ms": 30.0,
        "shutdown_timeout_seconds": 154,
        "pre_stop_seconds": 10,
        "termination_grace_period_seconds": 179,
        "startup_budget_seconds": 600,
        "steps": (),
        "warnings": (),
    }
    return SizingPlan(**(values | changes))


def render(effective: EffectiveTier, plan: SizingPlan | None = None, **changes: Any) -> dict[str, Any]:
    """The StatefulSet of a tier."""
    rendered = render_tier(pool_identity(), effective, plan or sizing_plan(), **changes)
    return next(manifest for manifest in rendered.manifests if manifest["kind"] == "StatefulSet")


def pod(effective: EffectiveTier, plan: SizingPlan | None = None) -> dict[str, Any]:
    """The pod spec of a tier."""
    spec: dict[str, Any] = render(effective, plan)["spec"]["template"]["spec"]
    return spec


def engine_container(effective: EffectiveTier, plan: SizingPlan | None = None) -> dict[str, Any]:
    """The engine's container."""
    return next(c for c in pod(effective, plan)["containers"] if c["name"] == "engine")


def warnings(effective: EffectiveTier, plan: SizingPlan | None = None) -> str:
    """All warnings of a tier, one a line."""
    return "\n".join(map(str, render_tier(pool_identity(), effective, plan or sizing_plan()).warnings))


def environment(effective: EffectiveTier) -> dict[str, Any]:
    """The engine's variables by name: the literal value, or the source."""
    return {v["name"]: v.get("value", v.get("valueFrom")) for v in engine_container(effective)["env"]}
