"""What a user's `model.configJSON` says is read strictly: nothing in it is passed over in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reasoningpool.api.resource import parse_pool
from reasoningpool.catalog import find_model
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from support.pools import pool

ENTRY = find_model("Qwen/Qwen3-32B")
assert ENTRY is not None
CONFIG: dict[str, Any] = dict(ENTRY.config)


def findings(text: str) -> tuple[list[str], list[str]]:
    """Errors and warnings of configJSON."""
    body = pool(model={"id": "example/32b", "configJSON": text})
    found = resolve(parse_pool(body), ResolutionSettings())
    return tuple(
        [finding.message for finding in group if finding.path == "spec.model.configJSON"]
        for group in (found.errors, found.warnings)
    )


def test_a_whole_configuration_is_neither_refused_nor_doubted() -> None:
    assert findings(json.dumps(CONFIG | {"dtype": "bfloat16", "torch_dtype": "torch.float16"})) == ([], [])


def test_a_key_that_is_written_twice_is_refused_at_any_depth() -> None:
    for text in (
        '{"hidden_size": 1, "hidden_size": 2}',
        '{"text_config": {"a": [{"hidden_size": 1, "hidden_size": 1}]}}',
    ):
        (error,) = findings(text)[0]
        assert "key 'hidden_size' is written twice" in error


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", ["float7", 16, ["bfloat16"]])
def test_a_type_that_does_not_exist_is_refused_by_its_key(key: str, value: object) -> None:
    (error,) = findings(json.dumps(CONFIG | {key: value}))[0]
    assert error.startswith(f"{key} must be a type such as bfloat16")


def test_a_feed_forward_without_a_width_is_refused_by_its_key() -> None:
    config = {key: value for key, value in CONFIG.items() if key != "intermediate_size"}
    (error,) = findings(json.dumps(config))[0]
    assert "has no intermediate_size" in error


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ("fp8", "quantization_config is no object but 'fp8'"),
        ([], "quantization_config is no object but []"),
        ({"quant_method": "fp9"}, "quant_method 'fp9' of quantization_config is not known"),
        ({"quant_method": 8}, "quant_method 8 of quantization_config is not known"),
        ({}, "quant_method None of quantization_config is not known"),
    ],
)
def test_a_quantization_that_is_not_understood_is_a_warning_that_names_it(stored: object, words: str) -> None:
    errors, (warning,) = findings(json.dumps(CONFIG | {"quantization_config": stored}))
    assert errors == []
    assert words in warning
    assert "taken as not quantized" in warning


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        {"quant_method": "AWQ", "bits": 4},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"quant_algo": "FP8"},
    ],
)
def test_known_quantization_gives_no_warning(stored: object) -> None:
    assert findings(json.dumps(CONFIG | {"quantization_config": stored})) == ([], [])
