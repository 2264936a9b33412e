"""Builders of sizing inputs: a valid tier with the parts a test cares about replaced."""

from __future__ import annotations

from typing import Any, Final

from reasoningpool.catalog import find_accelerator, find_model
from reasoningpool.model import Geometry
from reasoningpool.sizing import (
    AcceleratorFacts,
    ConcurrencyPolicy,
    DoesNotFit,
    Effort,
    KVCacheDType,
    SizingInput,
    SizingPlan,
    plan,
)

GIB: Final = 1 << 30
CPU: Final = AcceleratorFacts(
    product="CPU", memory_bytes=None, compute_capability=None, memory_bandwidth_bytes_per_s=None
)


def accelerator(name: str) -> AcceleratorFacts:
    entry = find_accelerator(name)
    assert entry is not None, name
    return entry.facts


def custom_gpu(gib: float, *, capability: tuple[int, int] = (9, 0), product: str = "custom") -> AcceleratorFacts:
    return AcceleratorFacts(
        product=product,
        memory_bytes=int(gib * GIB),
        compute_capability=capability,
        memory_bandwidth_bytes_per_s=1e12,
    )


def geometry(model: str) -> Geometry:
    entry = find_model(model)
    assert entry is not None, model
    return Geometry.from_config(entry.config, entry.checkpoint_quantization)


def dense_config(**changes: Any) -> dict[str, Any]:
    """A small dense model: 4 layers, 4 heads, 2 KV heads of 32, KV 1,024 bytes per token in bf16."""
    return {
        "model_type": "qwen3",
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 2048,
        "max_position_embeddings": 8192,
    } | changes


def effort(
    name: str = "high", *, prompt: int = 8192, thinking: int = 4096, answer: int = 1024, share: float = 1, **more: Any
) -> Effort:
    return Effort(name=name, prompt_tokens=prompt, thinking_tokens=thinking, answer_tokens=answer, share=share, **more)


EFFORTS: Final = (
    effort("low", thinking=0, answer=512),
    effort("medium", thinking=1024, answer=768),
    effort("high", thinking=4096, answer=1024),
)


def sizing_input(**changes: Any) -> SizingInput:
    """The example of docs/sizing-concurrency.md: Qwen3-32B-FP8 on one H100 with three efforts and an fp8 KV cache."""
    fields: dict[str, Any] = {
        "accelerator": accelerator("H100-SXM-80GB"),
        "tensor_parallel_size": 1,
        "geometry": geometry("Qwen/Qwen3-32B-FP8"),
        "weight_bytes": None,
        "kv_cache_dtype": KVCacheDType.FP8,
        "memory_utilization_permille": 920,
        "kv_cache_memory_bytes": None,
        "efforts": EFFORTS,
        "policy": ConcurrencyPolicy.STATISTICAL,
        "preemption_risk_permille": 10,
    }
    return SizingInput(**(fields | changes))


def planned(**changes: Any) -> SizingPlan:
    """The plan; fails the test when the budgets do not fit."""
    result = plan(sizing_input(**changes))
    assert isinstance(result, SizingPlan), result
    return result


def unfit(**changes: Any) -> DoesNotFit:
    """The answer that the budgets do not fit; fails the test when they do."""
    result = plan(sizing_input(**changes))
    assert isinstance(result, DoesNotFit), result
    return result
