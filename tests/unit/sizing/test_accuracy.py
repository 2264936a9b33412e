"""The memory model against public start-up observations (a copy of their figures), by the benchmark's own code."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench import known, observations, sizing_accuracy, sizing_calibration
from reasoningpool.model import Geometry
from unit.sizing.builders import GIB

DATA = Path(__file__).parents[2] / "data" / "kv_observations.json"
CONFIGS = Path(known.__file__).with_name("model_configs.yaml")
MODELS: list[dict[str, Any]] = yaml.safe_load(CONFIGS.read_text(encoding="utf-8"))


def lines_of(rows: list[observations.Observation]) -> dict[str, dict[str, float]]:
    """The benchmark's summary lines by their first word."""
    memory, tokens, _ = sizing_accuracy.report(rows)
    lines = sizing_accuracy.summary(memory, tokens)
    return {line.split()[0]: {k: float(v) for k, v in (p.split("=") for p in line.split()[1:])} for line in lines}


@pytest.fixture(scope="module", name="calibrating")
def calibrating_lines() -> dict[str, dict[str, float]]:
    """Of the rows that constants may be fitted on."""
    held_out = sizing_accuracy.held_out_ids()
    return lines_of([row for row in observations.load(DATA) if row.id not in held_out])


@pytest.fixture(scope="module", name="held_out")
def held_out_lines() -> dict[str, dict[str, float]]:
    """Of the third of the rows that none is fitted on."""
    held_out = sizing_accuracy.held_out_ids()
    return lines_of([row for row in observations.load(DATA) if row.id in held_out])


def test_sources_held_out_are_those_the_rule_chooses() -> None:
    rows = observations.load(DATA)
    chosen = {row.id for row in rows if int(sha256(row.source.encode()).hexdigest(), 16) % 3 == 0}
    assert sizing_accuracy.held_out_ids() == chosen


def test_predicted_memory_is_within_one_percent_of_the_gpu(calibrating: dict[str, dict[str, float]]) -> None:
    line = calibrating["memory"]
    assert line["rows"] >= 15
    assert line["median_abs_pct"] <= 0.5
    assert line["p90_abs_pct"] <= 2.5


def test_predicted_memory_holds_where_nothing_was_fitted(held_out: dict[str, dict[str, float]]) -> None:
    """What docs/sizing.md says of rows never seen."""
    line = held_out["memory"]
    assert line["rows"] >= 11
    assert line["median_abs_pct"] <= 1.2
    assert line["p90_abs_pct"] <= 4.0


def test_plans_never_promise_more_than_there_was_where_nothing_was_fitted(
    held_out: dict[str, dict[str, float]],
) -> None:
    line = held_out["memory_promised"]
    assert line["max_over_pct"] <= 0.5
    assert line["median_abs_pct"] <= 2.0


def test_most_observations_lie_in_the_interval_of_what_was_assumed(
    calibrating: dict[str, dict[str, float]], held_out: dict[str, dict[str, float]]
) -> None:
    for line in (calibrating["interval"], held_out["interval"]):
        assert line["rows"] == line["inside"] + line["outside"]
        assert line["inside"] >= 0.8 * line["rows"]


def test_tokens_follow_from_the_printed_memory(
    calibrating: dict[str, dict[str, float]], held_out: dict[str, dict[str, float]]
) -> None:
    for line in (calibrating["tokens"], held_out["tokens"]):
        assert line["rows"] >= 13
        assert line["median_abs_pct"] <= 0.1
        assert line["max_abs_pct"] < 2.0


def test_tokens_off_by_more_than_one_percent_are_the_explained_ones() -> None:
    _, tokens, _ = sizing_accuracy.report(observations.load(DATA))
    assert {r.row.id for r in tokens if abs(r.error) > 1} == {"kv003"}  # docs/sizing.md


def test_constants_hold_on_sources_they_were_not_taken_from() -> None:
    held_out = sizing_accuracy.held_out_ids()
    raw = [row for row in yaml.safe_load(DATA.read_text(encoding="utf-8")) if row["id"] not in held_out]
    errors = [left_out for *_, left_out in sizing_calibration.cross_validated(raw)]
    line = sizing_accuracy.memory_line("cross_validated", errors)
    found = {k: float(v) for k, v in (part.split("=") for part in line.split()[1:])}
    assert found["median_abs_pct"] <= 1.0
    assert found["p90_abs_pct"] <= 2.5


def test_constants_in_use_are_the_medians_of_their_evidence() -> None:
    held_out = sizing_accuracy.held_out_ids()
    raw = [row for row in yaml.safe_load(DATA.read_text(encoding="utf-8")) if row["id"] not in held_out]
    found = sizing_calibration.evidence(raw)
    assert sizing_calibration.median_of(found, "SAMPLER_SORT") == pytest.approx(9.57, abs=0.01)
    assert sizing_calibration.median_of(found, "NON_TORCH_BYTES") == pytest.approx(0.13 * GIB, abs=0.005 * GIB)


def test_rows_that_lack_an_input_say_which() -> None:
    _, _, missing = sizing_accuracy.report(observations.load(DATA))
    assert missing["kv096"] == ["memory: model", "tokens: model"]
    assert missing["kv003"] == ["memory: gpu_memory_utilization"]
    assert "GPU product" in missing["kv024"][0]
    assert "tensor-parallel groups" in missing["kv069"][0]


def test_derived_and_logged_figures_are_not_read() -> None:
    """Changing the log's own parts and every unknown key changes no prediction."""
    rows = json.loads(DATA.read_text(encoding="utf-8"))
    spoilt = [
        row
        | dict.fromkeys(("peak_activation_gib", "non_torch_gib", "cudagraph_gib", "model_loading_gib", "free_gib"), 7)
        | dict.fromkeys(("kv_bytes_per_token_expected", "kv_bytes_per_token_observed", "consistency"), 1)
        for row in rows
    ]
    before, tokens_before, _ = sizing_accuracy.report([observations.observation(row) for row in rows])
    after, tokens_after, _ = sizing_accuracy.report([observations.observation(row) for row in spoilt])
    assert [(r.row.id, r.predicted, r.low, r.high) for r in before] == [
        (r.row.id, r.predicted, r.low, r.high) for r in after
    ]
    assert [r.predicted for r in tokens_before] == [r.predicted for r in tokens_after]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Qwen/Qwen3-14B-AWQ", "qwen3-14b"),
        ("cyankiwi/Qwen3-Coder-30B-A3B-Instruct-AWQ-4bit", "qwen3-coder-30b-a3b"),
        ("RedHatAI/Mistral-Small-3.2-24B-Instruct-2506-quantized.w4a16", "mistral-small-3.2-24b"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "llama-3.1-8b"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-r1-0528-qwen3-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "deepseek-r1-distill-qwen-14b"),
        ("Qwen3-8B fine-tune (Medical_Qwen3_8B)", "qwen3-8b"),
        ("Qwen3.6-27B (AutoRound int4)", "qwen3.6-27b"),
        ("microsoft/Phi-4 (local)", "phi-4"),
        ("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b"),
    ],
)
def test_models_are_found_by_the_names_people_write(written: str, name: str) -> None:
    found = known.find(written)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("written", ["32B FP16 dense (name not given)", "Qwen3", "8B", "", "my-model", "qwen3-80b"])
def test_unknown_model_is_not_guessed(written: str) -> None:
    assert known.find(written) is None


@pytest.mark.parametrize(
    ("gpu", "nominal", "gib"),
    [
        ("H100", 80, 79.18),
        ("NVIDIA H100 80GB HBM3", 80, 79.18),
        ("H200", 141, 139.81),
        ("RTX 4090", 24, 23.52),
        ("L40S", None, 44.40),
        ("L40", 48, 44.40),
        ("A10G", 24, 22.03),
        ("H20", 96, 95.0),
        ("GeForce RTX4090", 24, 23.52),
        ("RTX PRO 6000", 96, 94.97),
        ("A100-SXM4-80GB", None, 79.14),
        ("H100 NVL", 94, 93.09),
        ("B200", 192, 178.35),
        ("DGX Spark (GB10)", 128, 119.6),
        ("A100", 40, 39.39),
    ],
)
def test_devices_are_found_by_product_and_size(gpu: str, nominal: float | None, gib: float) -> None:
    found = known.device(gpu, nominal, None)
    assert found is not None
    assert found.memory_bytes is not None
    assert found.memory_bytes / GIB == pytest.approx(gib, rel=0.002)


@pytest.mark.parametrize(
    ("gpu", "nominal"), [("A100", None), (None, 24), ("Intel (XPU)", None), ("A100 80GB or H100", 80), (None, None)]
)
def test_devices_of_unknown_size_are_not_guessed(gpu: str | None, nominal: float | None) -> None:
    assert known.device(gpu, nominal, None) is None


@pytest.mark.parametrize("entry", MODELS, ids=lambda entry: entry["names"][0])
def test_geometry_of_the_benchmark_gives_the_published_parameter_count(entry: dict[str, Any]) -> None:
    geometry = Geometry.from_config(entry["config"], "none")
    published = entry.get("paramsB")
    if published is None:
        assert entry["names"][0] in {"qwen3.5-0.8b", "qwen3.5-2b"}  # no count of the text model alone is known
        return
    assert geometry.weights.total / 1e9 == pytest.approx(published, rel=0.007)


VALUES = st.none() | st.booleans() | st.integers(-10, 10**7) | st.floats() | st.text(max_size=20) | st.just([1])
KEYS = (
    "id", "source", "vllm_version", "model", "quantization", "weights_dtype", "gpu", "gpu_memory_gib", "total_gpu_gib",
    "n_gpus", "tp", "pp", "dp", "gpu_memory_utilization", "kv_cache_dtype", "max_model_len", "max_num_seqs",
    "max_num_batched_tokens", "enforce_eager", "spec_decode", "model_loading_gib", "available_kv_gib", "kv_tokens",
    "num_gpu_blocks", "block_size", "error", "notes",
)  # fmt: skip
GOOD = json.loads(DATA.read_text(encoding="utf-8"))


@given(base=st.sampled_from(GOOD), noise=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_row_is_predicted_or_listed(base: dict[str, Any], noise: dict[str, Any]) -> None:
    """Nulls, texts and absurd figures in any column are an answer, never a fault."""
    row = observations.observation(base | noise)
    memory, tokens, missing = sizing_accuracy.report([row])
    assert len(memory) + len(tokens) + len(missing.get(row.id, [])) == 2
    for line in sizing_accuracy.summary(memory, tokens):
        assert "rows=" in line
