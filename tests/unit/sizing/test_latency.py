"""Times of the compute model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reasoningpool.model.quantization import WeightFormat
from reasoningpool.sizing.latency import prefill_tokens_per_second
from unit.sizing.builders import accelerator, geometry, sizing_input


def prefill(fmt: WeightFormat, product: str) -> float:
    shape = geometry("Qwen/Qwen3-32B-FP8")
    shape = replace(shape, quantization=replace(shape.quantization, format=fmt))
    return prefill_tokens_per_second(replace(sizing_input(), geometry=shape, accelerator=accelerator(product)))


@pytest.mark.parametrize("fmt", [WeightFormat.FP8, WeightFormat.FP8_BLOCK])
def test_fp8_weights_double_the_prefill_rate_where_the_gpu_multiplies_in_fp8(fmt: WeightFormat) -> None:
    assert prefill(fmt, "H100-SXM-80GB") == 2 * prefill(WeightFormat.BF16, "H100-SXM-80GB")
    assert prefill(fmt, "A100-SXM-80GB") == prefill(WeightFormat.BF16, "A100-SXM-80GB")


def test_qwen3_32b_fp8_on_an_h100_computes_the_documented_rate() -> None:
    """The checkpoint's own format, scales per block, not one set by hand."""
    own = replace(sizing_input(), geometry=geometry("Qwen/Qwen3-32B-FP8"), accelerator=accelerator("H100-SXM-80GB"))
    assert own.geometry.weight_format is WeightFormat.FP8_BLOCK
    assert prefill_tokens_per_second(own) == pytest.approx(13_400, rel=0.02)
