"""A finding names the place where the user wrote the value, which a tier may inherit."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

import pytest

from reasoningpool.api.resource import parse_pool
from reasoningpool.api.spec_engine import EngineSpec
from reasoningpool.model.errors import SizingAttribute
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from reasoningpool.resolution.written import HOMES, Part, WrittenTier
from reasoningpool.sizing import Effort, SizingError, SizingInput
from support.pools import changed, chat_tier, full, pool, tier

QUANTILES = {"p50": 1, "p90": 2, "p99": 3}
OWN = {
    "accelerator": {"product": "L4-24GB"},
    "engine": {"kvCacheMemory": "1Gi"},
    "tokenDistribution": [{"effort": "medium", "output": QUANTILES}],
}
ENGINE = {"kvCacheMemory": "2Gi", "memoryUtilizationPercent": 90}
BODY = pool(engine=ENGINE, tiers=[tier(), chat_tier(**OWN | {"tokenDistribution": None})])


@pytest.mark.parametrize(
    ("index", "attribute", "path"),
    [
        (0, "kv_cache_memory_bytes", "spec.engine.kvCacheMemory"),
        (1, "kv_cache_memory_bytes", "spec.tiers[1].engine.kvCacheMemory"),
        (1, "memory_utilization_permille", "spec.engine.memoryUtilizationPercent"),
        (0, "load_bandwidth_bytes_per_s", "spec.engine.loadBandwidth"),
        (0, "tensor_parallel_size", "spec.accelerator.perReplica"),
        (1, "tensor_parallel_size", "spec.tiers[1].accelerator.perReplica"),
        (0, "memory_bytes", "spec.accelerator.custom.memory"),
        (1, "weight_bytes", "spec.model"),
        (0, "block_size", "spec.tiers[0].blockSize"),
        (0, "thinking_tokens", "spec.tiers[0].efforts[0].thinkingTokens"),
        (0, "prompt_tokens", "spec.tiers[0].promptTokens"),
        (0, "output_distribution", "spec.tiers[0].tokenDistribution.output"),
        (0, "pre_stop_seconds", "spec.tiers[0].podOverrides.preStopSeconds"),
        (0, None, "spec.tiers[0]"),
        (0, "template_overhead_tokens", "spec.tiers[0]"),
    ],
)
def test_an_input_is_named_where_it_was_written(index: int, attribute: SizingAttribute | None, path: str) -> None:
    place = WrittenTier(parse_pool(_without_nones(BODY)).spec, index)
    assert place.sizing(attribute, "medium") == path


def test_every_input_of_the_calculation_has_a_place() -> None:
    inputs = {field.name for kind in (SizingInput, Effort) for field in fields(kind)} | {"memory_bytes"}
    assert set(get_args(SizingAttribute)) == inputs
    assert set(HOMES) == inputs
    assert {field for part, field in HOMES.values() if part is Part.ENGINE} <= set(EngineSpec.model_fields)


def test_observed_lengths_are_named_by_their_entry() -> None:
    body = changed(pool(), "spec.tiers.0.tokenDistribution", OWN["tokenDistribution"])
    place = WrittenTier(parse_pool(body).spec, 0)
    assert place.sizing("output_distribution", "medium") == "spec.tiers[0].tokenDistribution[0].output"


def test_what_the_calculation_refuses_is_named_where_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        message = "no plan"
        raise SizingError(message, attribute="kv_cache_memory_bytes")

    monkeypatch.setattr("reasoningpool.planning.outcome.sized", refuse)
    found = offline_pool(parse_pool(pool(engine={"kvCacheMemory": "1Gi"})), ResolutionSettings())
    assert [error.path for error in found.errors] == ["spec.engine.kvCacheMemory"]


def test_a_chat_template_of_the_pool_that_is_too_long_is_named_there() -> None:
    body = changed(pool(), "spec.engine.chatTemplate", {"inline": "漢" * 60_000})
    assert [e.path for e in offline_pool(parse_pool(body), ResolutionSettings()).errors] == [
        "spec.engine.chatTemplate.inline"
    ]


def test_every_path_of_a_finding_stands_in_the_file() -> None:
    """Whatever a finding says about the full spec, its path leads to something that is written there."""
    body = full()
    settings = replace(ResolutionSettings(), allowed_service_accounts=frozenset({"engine"}))
    found = offline_pool(parse_pool(body), settings)
    assert found.warnings
    for finding in found.warnings:
        node: Any = body
        for part in finding.path.replace("[", ".").replace("]", "").split("."):
            node = node[int(part)] if isinstance(node, list) else node[part]


def _without_nones(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_nones(value) for key, value in node.items() if value is not None}
    return [_without_nones(entry) for entry in node] if isinstance(node, list) else node
