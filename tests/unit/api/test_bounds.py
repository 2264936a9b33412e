"""Every field is bounded: no number without limits, no text with NUL, no quantity without a least and a most."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.api.crd import structural_schema
from reasoningpool.api.resource import SpecError, parse_pool
from reasoningpool.api.scalars import exact_quantity, parse_quantity
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.status import ReasoningPoolStatus
from support.pools import changed, pool

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = structural_schema(ReasoningPoolSpec.model_json_schema(by_alias=True))
STATUS = structural_schema(ReasoningPoolStatus.model_json_schema(by_alias=True))
ENV = "spec.tiers.0.podOverrides.containers"


def leaves(node: dict[str, Any], path: str = "spec") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every scalar of the schema with its path."""
    for name, child in node.get("properties", {}).items():
        yield from leaves(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from leaves(node[key], f"{path}[]")
    if not {"properties", "items", "additionalProperties"} & node.keys():
        yield path, node


def problems(body: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as refused:
        parse_pool(body)
    return [str(finding) for finding in refused.value.findings]


def test_no_text_of_the_resource_may_hold_nul() -> None:
    texts = {path: node for path, node in leaves(SPEC) if node.get("type") == "string" and "enum" not in node}
    assert len(texts) > 50
    without = [path for path, node in texts.items() if "pattern" not in node]
    assert without == []
    assert [path for path, node in texts.items() if re.search(node["pattern"], "a\0") is not None] == []


def test_every_number_has_a_least_and_a_most() -> None:
    numbers = {path: node for path, node in leaves(SPEC) if node.get("type") in {"integer", "number"}}
    assert len(numbers) > 30
    assert [path for path, node in numbers.items() if not {"minimum", "maximum"} <= node.keys()] == []


def test_every_quantity_has_a_least_and_a_most() -> None:
    quantities = {path: node for path, node in leaves(SPEC) if node.get("x-kubernetes-int-or-string")}
    assert len(quantities) > 10
    rules = {path: node["x-kubernetes-validations"][0]["rule"] for path, node in quantities.items()}
    assert [path for path, rule in rules.items() if ">= 0" not in rule or "<= 0" not in rule] == []


def test_kubectl_explain_has_words_for_every_field_of_status() -> None:
    assert list(undescribed(STATUS, "status")) == []


def test_kubectl_explain_has_words_for_every_field_of_spec_but_a_pods_own() -> None:
    """Fields of podOverrides and placement are named and explained as in a pod."""
    assert [path for path in undescribed(SPEC, "spec") if not re.search(r"podOverrides\.|tolerations", path)] == []


def undescribed(node: dict[str, Any], path: str) -> Iterator[str]:
    """Fields of objects without a description."""
    for name, child in node.get("properties", {}).items():
        if "description" not in child:
            yield f"{path}.{name}"
        yield from undescribed(child, f"{path}.{name}")
    if "items" in node:
        yield from undescribed(node["items"], f"{path}[]")


def test_a_quantity_says_what_it_is_since_kubectl_explain_cannot() -> None:
    memory = SPEC["properties"]["engine"]["properties"]["kvCacheMemory"]
    assert memory["description"].endswith("A quantity, such as 500M or 64Gi.")


@pytest.mark.parametrize("value", ["0", "1", "1048575", "500m", "1Pi", "16385Gi", 0, -1, 2**44 + 1, 2**63, "9" * 20])
def test_an_absurd_amount_of_memory_is_refused_in_plain_words(value: str | int) -> None:
    (problem,) = problems(changed(pool(), "spec.engine.kvCacheMemory", value))
    assert problem.startswith("spec.engine.kvCacheMemory: must be ")
    assert "bytes;" not in problem


@pytest.mark.parametrize("value", ["1Mi", 2**20, "16Ti", 2**44, "1.5Gi"])
def test_sensible_amounts_are_taken(value: str | int) -> None:
    assert parse_pool(changed(pool(), "spec.engine.kvCacheMemory", value)).spec.engine is not None


def test_a_quantity_with_a_line_break_is_none() -> None:
    assert "must be a quantity" in problems(changed(pool(), "spec.engine.kvCacheMemory", "1Gi\n"))[0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.engine.extraArgs", ["--seed\0"]),
        ("spec.engine.chatTemplate", {"inline": "a\0"}),
        ("spec.model.configJSON", "{}\0"),
        ("spec.tiers.0.podOverrides.annotations", {"a": "\0"}),
        (ENV, [{"name": "engine", "env": [{"name": "A", "value": "\0"}]}]),
        (ENV, [{"name": "tool", "image": "x", "command": ["a\0"], "args": ["\0"]}]),
    ],
)
def test_nul_is_refused_and_not_repeated(path: str, value: Any) -> None:
    for problem in problems(changed(pool(), path, value)):
        assert "must not contain the character NUL" in problem
        assert "\0" not in problem


@given(st.integers(min_value=0, max_value=10**15))
def test_rounding_up_never_lowers_an_amount(millis: int) -> None:
    assert 0 <= parse_quantity(f"{millis}m") - exact_quantity(f"{millis}m") < 1
