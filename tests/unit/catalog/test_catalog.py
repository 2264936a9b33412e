"""The data files say what they claim, and names are found the way people write them."""

import pytest

from reasoningpool.catalog import (
    accelerators,
    find_accelerator,
    find_model,
    models,
    parser_enforces_budgets,
    parser_since,
    suggest_accelerators,
    suggest_models,
)
from reasoningpool.model import Geometry

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "nominal_gb", "capability"),
    [
        ("H100-SXM-80GB", 80, (9, 0)),
        ("H100-PCIe-80GB", 80, (9, 0)),
        ("H100-NVL-94GB", 94, (9, 0)),
        ("H200-SXM-141GB", 141, (9, 0)),
        ("A100-SXM-40GB", 40, (8, 0)),
        ("A100-PCIe-40GB", 40, (8, 0)),
        ("A100-SXM-80GB", 80, (8, 0)),
        ("A100-PCIe-80GB", 80, (8, 0)),
        ("L4-24GB", 24, (8, 9)),
        ("L40S-48GB", 48, (8, 9)),
        ("B200-180GB", 180, (10, 0)),
        ("RTX-4090-24GB", 24, (8, 9)),
    ],
)
def test_accelerator_has_less_memory_than_its_name_says_in_gib(
    name: str, nominal_gb: int, capability: tuple[int, int]
) -> None:
    entry = accelerators()[name]
    assert entry.facts.product == name
    assert entry.facts.memory_bytes is not None
    assert 0.9 * nominal_gb < entry.facts.memory_bytes / GIB < nominal_gb
    assert entry.facts.compute_capability == capability
    assert entry.resource_name == "nvidia.com/gpu"
    assert entry.node_label_key == "nvidia.com/gpu.product"
    assert entry.node_label_values
    assert entry.facts.memory_bandwidth_bytes_per_s is not None
    assert 2e11 < entry.facts.memory_bandwidth_bytes_per_s < 1e13


def test_an_h100_reports_79_18_gib() -> None:
    memory = accelerators()["H100-SXM-80GB"].facts.memory_bytes
    assert memory is not None
    assert memory / GIB == pytest.approx(79.18, abs=0.001)


def test_the_cpu_asks_for_no_device() -> None:
    entry = accelerators()["CPU"]
    assert (entry.facts.memory_bytes, entry.resource_name, entry.node_label_key, entry.node_label_values) == (
        None,
        None,
        None,
        (),
    )


def test_no_node_label_belongs_to_two_products() -> None:
    labels = [label for entry in accelerators().values() for label in entry.node_label_values]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
        ("qwen/qwen3-32b-fp8", "Qwen/Qwen3-32B-FP8"),
        (" openai/gpt-oss-120b ", "openai/gpt-oss-120b"),
    ],
)
def test_models_are_found_in_any_case(name: str, found: str) -> None:
    entry = find_model(name)
    assert entry is not None
    assert entry.id == found


def test_variants_of_one_model_differ_in_quantization_only() -> None:
    plain, fp8 = models()["Qwen/Qwen3-32B"], models()["Qwen/Qwen3-32B-FP8"]
    assert plain.config == fp8.config
    assert (plain.checkpoint_quantization, fp8.checkpoint_quantization) == (None, "fp8_block")


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        ("Qwen3-32B", "Qwen/Qwen3-32B"),
        ("Qwen/Qwen-3-32B-FP8", "Qwen/Qwen3-32B-FP8"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("deepseek/DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
    ],
)
def test_the_nearest_model_is_suggested_first(wrong: str, first: str) -> None:
    assert find_model(wrong) is None
    assert suggest_models(wrong)[0] == first


@pytest.mark.parametrize(
    ("wrong", "first"),
    [("H100", "H100-SXM-80GB"), ("4090", "RTX-4090-24GB"), ("A100-80GB", "A100-SXM-80GB"), ("l40s", "L40S-48GB")],
)
def test_the_nearest_accelerator_is_suggested_first(wrong: str, first: str) -> None:
    assert find_accelerator(wrong) is None
    assert suggest_accelerators(wrong)[0] == first


@pytest.mark.parametrize("wrong", ["", "x", "\n\0", "ü" * 10_000, "something/else-entirely"])
def test_a_name_like_nothing_gets_no_suggestion(wrong: str) -> None:
    assert find_model(wrong) is None
    assert suggest_accelerators(wrong) == ()


def test_every_model_has_a_geometry_with_its_native_context_and_known_parsers() -> None:
    for entry in models().values():
        geometry = Geometry.from_config(entry.config, entry.checkpoint_quantization)
        assert geometry.native_context_tokens == entry.native_context_tokens, entry.id
        for kind, parser in (("reasoning", entry.reasoning_parser), ("toolCall", entry.tool_call_parser)):
            assert parser is None or parser_since(kind, parser) is not None, (entry.id, parser)


def test_every_entry_says_where_its_figures_come_from() -> None:
    for entry in (*models().values(), *accelerators().values()):
        assert entry.sources
        assert all(source.text for source in entry.sources)


@pytest.mark.parametrize(
    ("model", "parser", "switch", "enforceable"),
    [
        ("Qwen/Qwen3-8B", "qwen3", "enable_thinking", True),
        ("deepseek-ai/DeepSeek-R1", "deepseek_r1", None, True),
        ("openai/gpt-oss-20b", "openai_gptoss", None, False),
        ("zai-org/GLM-4.5", "glm45", "enable_thinking", True),
        ("MiniMaxAI/MiniMax-M2", "minimax_m2", None, True),
        ("meta-llama/Llama-3.1-8B-Instruct", None, None, False),
    ],
)
def test_thinking_of_a_model(model: str, parser: str | None, switch: str | None, *, enforceable: bool) -> None:
    entry = models()[model]
    assert (entry.reasoning_parser, entry.thinking_switch, entry.thinking_budget_enforceable) == (
        parser,
        switch,
        enforceable,
    )


def test_only_gpt_oss_parses_without_being_asked() -> None:
    assert {entry.family for entry in models().values() if entry.parser_always_on} == {"gpt_oss"}


def test_parsers_by_version() -> None:
    assert parser_since("reasoning", "qwen3") == (0, 9, 0)
    assert parser_since("reasoning", "deepseek_r1") == (0, 0, 0)
    assert parser_since("reasoning", "step5") == (0, 33, 0)
    assert parser_since("toolCall", "qwen3") is None
    assert not parser_enforces_budgets("openai_gptoss")
    assert parser_enforces_budgets("qwen3")
