"""A finding names the place where the user wrote the value, which a tier may inherit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reasoningpool.api.resource import parse_pool
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from reasoningpool.resolution.written import written_path
from reasoningpool.sizing import SizingError
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
    ("index", "field", "path"),
    [
        (0, "engine.kvCacheMemory", "spec.engine.kvCacheMemory"),
        (1, "engine.kvCacheMemory", "spec.tiers[1].engine.kvCacheMemory"),
        (1, "engine.memoryUtilizationPercent", "spec.engine.memoryUtilizationPercent"),
        (0, "engine.chatTemplate.inline", "spec.engine.chatTemplate.inline"),
        (0, "loadBandwidth", "spec.engine.loadBandwidth"),
        (0, "accelerator.perReplica", "spec.accelerator.perReplica"),
        (1, "accelerator.perReplica", "spec.tiers[1].accelerator.perReplica"),
        (0, "accelerator memory", "spec.accelerator.custom.memory"),
        (1, "model weight bytes", "spec.model"),
        (0, "blockSize", "spec.tiers[0].blockSize"),
        (0, "efforts[medium].thinkingTokens", "spec.tiers[0].efforts[0].thinkingTokens"),
        (0, "efforts[medium].promptTokens", "spec.tiers[0].promptTokens"),
        (0, "efforts[medium].tokenDistribution.output", "spec.tiers[0].tokenDistribution.output"),
        (0, "preStopSeconds", "spec.tiers[0].podOverrides.preStopSeconds"),
        (0, None, "spec.tiers[0]"),
        (0, "templateOverheadTokens", "spec.tiers[0]"),
    ],
)
def test_a_field_is_named_where_it_was_written(index: int, field: str | None, path: str) -> None:
    assert written_path(parse_pool(_without_nones(BODY)).spec, index, field) == path


def test_observed_lengths_are_named_by_their_entry() -> None:
    body = changed(pool(), "spec.tiers.0.tokenDistribution", OWN["tokenDistribution"])
    field = "efforts[medium].tokenDistribution.output"
    assert written_path(parse_pool(body).spec, 0, field) == "spec.tiers[0].tokenDistribution[0].output"


def test_what_the_calculation_refuses_is_named_where_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        message = "no plan"
        raise SizingError(message, field="engine.kvCacheMemory")

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
