"""Configurations that were once sized wrongly in silence, each with the right figures, by id.

"Observed" is a public start-up's printed figure, "planner" is vLLM 0.32's own planner or model class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reasoningpool.api.resource import parse_pool
from reasoningpool.planning.offline import OfflinePool, offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from reasoningpool.sizing import SizingInput, SizingPlan, plan
from reasoningpool.sizing.kv.blocks import KVLayout, kv_layout
from reasoningpool.sizing.memory import memory_shares
from unit.sizing.builders import GIB

CASES = {path.name[:2]: path for path in (Path(__file__).parents[2] / "data" / "sizing_cases").glob("*.yaml")}


def answered(case: str, **engine: Any) -> OfflinePool:
    body = yaml.safe_load(CASES[case].read_text(encoding="utf-8"))
    body["metadata"].setdefault("namespace", "default")
    body["spec"].setdefault("engine", {}).update(engine)
    return offline_pool(parse_pool(body), ResolutionSettings())


def sized(case: str) -> tuple[SizingInput, SizingPlan]:
    inputs = answered(case).tiers[0].inputs
    found = plan(inputs)
    assert isinstance(found, SizingPlan)
    return inputs, found


def layout_of(inputs: SizingInput) -> KVLayout:
    return kv_layout(
        inputs.geometry,
        inputs.accelerator,
        tensor_parallel=inputs.tensor_parallel_size,
        dtype=inputs.kv_cache_dtype,
        block_size=None,
    )


def parameters(inputs: SizingInput) -> int:
    return inputs.geometry.weights.parameters_per_gpu(inputs.tensor_parallel_size)


def test_02_a_vision_tower_is_counted_with_its_work_space() -> None:
    inputs, _found = sized("02")
    shares = memory_shares(inputs, batched_tokens=8192, sequences=256)
    assert shares.weights / GIB == pytest.approx(17.66, abs=0.05)  # observed
    assert shares.pool / GIB < 20.27  # observed
    assert shares.central_pool / GIB == pytest.approx(20.27, abs=0.2)


def test_05_experts_without_nvlink_are_not_promised_more_than_there_was() -> None:
    shares = memory_shares(sized("05")[0], batched_tokens=8192, sequences=32)
    assert shares.pool / GIB <= 27.85  # observed


def test_06_multi_token_prediction_is_refused_where_the_model_has_no_layers_for_it() -> None:
    (finding,) = answered("06").errors
    assert finding.path == "spec.tiers[0].speculative.method"
    assert "no layers for multi-token prediction" in finding.message


def test_07_chunked_layers_and_the_shared_expert_of_each_mixture_are_counted() -> None:
    inputs, _ = sized("07")
    assert parameters(inputs) == 26_945_786_880  # planner
    assert layout_of(inputs).chunked


def test_09_a_model_whose_linear_attention_is_not_known_is_refused() -> None:
    (finding,) = answered("09").errors
    assert "not known how" in finding.message
    assert "kimi_linear" in finding.message


def test_11_kv_heads_of_chatglm_are_its_query_groups() -> None:
    assert sized("11")[1].kv_bytes_per_token == 28_672


@pytest.mark.parametrize("case", ["12", "13"])
def test_12_13_dbrx_is_read_whatever_was_added_to_it(case: str) -> None:
    inputs, found = sized(case)
    assert found.kv_bytes_per_token == 20_480
    assert parameters(inputs) == 16_453_441_536  # planner


def test_14_latent_attention_needs_no_head_dim() -> None:
    inputs, _ = sized("14")
    assert parameters(inputs) == 29_943_393_920  # planner


def test_15_a_list_of_equal_widths_is_read() -> None:
    inputs, _ = sized("15")
    assert inputs.geometry.intermediate_size == 16_384


def test_17_a_model_of_sliding_layers_alone_keeps_its_window() -> None:
    inputs, _ = sized("17")
    layout = layout_of(inputs)
    pool = 412_416 // 16 * layout.bytes_per_block  # blocks there were
    blocks = pool // layout.bytes_per_block
    tokens = int(blocks / layout.planner_blocks(131_072, 8_192) * 131_072)
    assert tokens == pytest.approx(1_107_010, rel=0.01)  # planner, for about this pool
    assert layout.request_blocks(131_072) == 32_768 // 16 + 1


def test_18_dense_layers_before_the_mixtures_are_counted_as_such() -> None:
    assert parameters(sized("18")[0]) == 4_170_737_088  # planner


def test_every_case_is_tested() -> None:
    assert set(CASES) == {"02", "05", "06", "07", "09", "11", "12", "13", "14", "15", "17", "18"}


def test_what_is_not_known_can_be_stated_instead() -> None:
    body = yaml.safe_load(CASES["11"].read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = "default"
    body["spec"]["model"]["configJSON"] = body["spec"]["model"]["configJSON"].replace('"chatglm"', '"chatglm9"')
    refused = offline_pool(parse_pool(body), ResolutionSettings())
    assert any("not known how" in error.message and "kvCacheMemory" in error.message for error in refused.errors)
    body["spec"]["engine"]["kvCacheMemory"] = "20Gi"
    allowed = offline_pool(parse_pool(body), ResolutionSettings())
    assert not allowed.errors
    assert any("not known how" in warning.message for warning in (*allowed.warnings, *allowed.tiers[0].warnings))


def test_text_alone_frees_the_tower_and_its_work_space() -> None:
    body = yaml.safe_load(CASES["02"].read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = "default"
    with_images = offline_pool(parse_pool(body), ResolutionSettings()).tiers[0]
    body["spec"]["model"]["modalities"] = ["Text"]
    found = offline_pool(parse_pool(body), ResolutionSettings())
    (tier,) = found.tiers
    assert tier.inputs.vision_weight_bytes == 0
    assert with_images.inputs.vision_weight_bytes / GIB == pytest.approx(0.85, abs=0.01)
    before, after = (
        memory_shares(inputs, batched_tokens=8192, sequences=256).pool for inputs in (with_images.inputs, tier.inputs)
    )
    assert after - before > 1.5 * GIB
    assert any("--language-model-only" in str(manifest) for manifest in found.manifests)


def test_a_modality_that_the_model_has_not_is_refused() -> None:
    body = yaml.safe_load(CASES["11"].read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = "default"
    body["spec"]["model"]["modalities"] = ["Text", "Audio"]
    (finding,) = offline_pool(parse_pool(body), ResolutionSettings()).errors
    assert finding.path == "spec.model.modalities"
