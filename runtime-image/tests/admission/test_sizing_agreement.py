"""The runtime and the operator's sizing agree where their mathematics meet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reasoningpool.sizing import (
    AcceleratorFacts,
    ConcurrencyPolicy,
    Effort,
    Geometry,
    KVCacheDType,
    SizingInput,
    SizingPlan,
    plan,
)
from reasoningpool.sizing.load.demand import effort_tokens, resident_tokens
from reasoningpool_runtime.admission.ledger import Ledger, Share
from reasoningpool_runtime.admission.lengths import WINDOW, LengthHistory
from reasoningpool_runtime.admission.types import AdmissionRequest, Capacity

BLOCK = 32
TINY = Geometry.from_config(
    {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_size": 128,
        "intermediate_size": 256,
        "vocab_size": 2048,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
)


def sizing(*efforts: tuple[int, int, int], mib: int = 32) -> SizingInput:
    return SizingInput(
        accelerator=AcceleratorFacts(
            product="CPU", memory_bytes=None, compute_capability=None, memory_bandwidth_bytes_per_s=None
        ),
        tensor_parallel_size=1,
        geometry=TINY,
        weight_bytes=None,
        kv_cache_dtype=KVCacheDType.AUTO,
        memory_utilization_permille=900,
        kv_cache_memory_bytes=mib << 20,
        efforts=tuple(
            Effort(name=f"e{i}", prompt_tokens=prompt, thinking_tokens=0, answer_tokens=output, share=share)
            for i, (prompt, output, share) in enumerate(efforts)
        ),
        policy=ConcurrencyPolicy.WORST_CASE,
        preemption_risk_permille=10,
        block_size=BLOCK,
    )


EFFORTS = ((64, 40, 3), (96, 140, 2), (64, 420, 1))


def test_mean_tokens_in_flight_are_those_of_the_sizing() -> None:
    inputs = replace(sizing(*EFFORTS), template_overhead_tokens=0)
    theirs = resident_tokens(inputs, effort_tokens(inputs, None), batched_tokens=1 << 40)
    weighted = total = 0.0
    for prompt, output, share in EFFORTS:
        history = LengthHistory()
        for _ in range(WINDOW):
            history.record(output, ended=True)
        survival = history.survival(np.zeros(0, dtype=np.int64), output)
        weighted += share * survival.mean() * survival.mean_resident(prompt)
        total += share * survival.mean()
    assert weighted / total == pytest.approx(theirs.mean)


def test_committing_caps_carries_as_many_requests_as_the_worst_case_of_the_sizing() -> None:
    inputs = sizing((64, 420, 1))
    found = plan(inputs)
    assert isinstance(found, SizingPlan)
    capacity = Capacity(blocks=found.num_blocks - 1, block_tokens=BLOCK)
    ledger = Ledger(capacity)
    one = AdmissionRequest(effort="e0", prompt_tokens=64 + inputs.template_overhead_tokens, max_output_tokens=420)
    while ledger.committed_blocks + ledger.needs(one)[1] <= capacity.blocks:
        ledger.start(Share(one, np.zeros((1, 1))), 0.0)
    assert len(ledger) == found.max_num_seqs
