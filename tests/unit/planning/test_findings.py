"""Findings reach the tier that they are about, and the pool's message once."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.api.findings import Finding, Findings, Severity, error, errors_of, warning, warnings_of
from reasoningpool.api.resource import parse_pool
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from support.pools import pool, tier
from support.world import World

CONTRADICTION = {"kvCacheMemory": "40Gi", "memoryUtilizationPercent": 90}


def warnings_by_tier(body: dict[str, Any]) -> dict[str, list[str]]:
    world = World(body)
    world.step()
    return {entry["name"]: entry.get("warnings", []) for entry in world.pool["status"]["tiers"]}


@pytest.mark.parametrize("index", [0, 1, 9, 10, 11])
def test_tier_warning_belongs_to_that_tier_only(index: int) -> None:
    """Ten and one share a prefix of their paths, which must not matter."""
    tiers = [tier(f"t{number}") for number in range(12)]
    tiers[index]["engine"] = CONTRADICTION
    found = warnings_by_tier(pool(tiers=tiers))
    told = [
        name
        for name, warnings in found.items()
        if any("has no effect, since kvCacheMemory" in text for text in warnings)
    ]
    assert told == [f"t{index}"]


def test_pool_engine_warning_is_reported_once_and_for_no_tier() -> None:
    body = pool(engine=CONTRADICTION, tiers=[tier("one"), tier("two")])
    found = offline_pool(parse_pool(body), ResolutionSettings())
    about = [entry for entry in found.warnings if "has no effect, since kvCacheMemory" in entry.message]
    assert [(entry.path, entry.tier) for entry in about] == [("spec.engine.memoryUtilizationPercent", None)]
    assert not any(
        "has no effect, since kvCacheMemory" in text
        for warnings in warnings_by_tier(body).values()
        for text in warnings
    )


def test_warnings_of_the_calculation_carry_tier_and_path() -> None:
    body = pool(tiers=[tier("one"), tier("two", maxNumSeqs=4000)])
    one, two = offline_pool(parse_pool(body), ResolutionSettings()).tiers
    (found,) = [entry for entry in two.warnings if "exceeds the derived" in entry.message]
    assert (found.tier, found.path) == ("two", "spec.tiers[1].maxNumSeqs")
    assert str(found) == found.message  # it names the field itself
    assert not any("exceeds the derived" in entry.message for entry in one.warnings)


def test_warnings_of_rendering_carry_tier_and_path() -> None:
    hasty = {"startupProbe": {"failureThreshold": 1}}
    body = pool(tiers=[tier("one"), tier("two", podOverrides=hasty)])
    _, two = offline_pool(parse_pool(body), ResolutionSettings()).tiers
    (found,) = [entry for entry in two.warnings if "AggressiveStartup" in entry.message]
    assert (found.tier, found.path) == ("two", "spec.tiers[1].podOverrides.startupProbe")


def test_a_collector_of_a_tier_adds_to_the_same_list() -> None:
    findings = Findings()
    findings.of("one").warning("spec.tiers[0].efforts", "short")
    findings.error("spec.model", "unknown")
    findings.of("one").warning("spec.tiers[0].efforts", "short")
    assert [(found.tier, found.severity) for found in findings.all()] == [
        ("one", Severity.WARNING),
        (None, Severity.ERROR),
    ]


def test_errors_and_warnings_differ_by_severity() -> None:
    both = (error("a", "wrong"), warning("b", "doubtful"))
    assert (errors_of(both), warnings_of(both)) == ((both[0],), (both[1],))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (error("spec.model", "is unknown"), "spec.model: is unknown"),
        (warning("spec.model", "the model is old", standalone=True), "the model is old"),
        (error("", "is no object"), "is no object"),
        (
            error("labels", "is wrong").under("spec.tiers[0].podOverrides"),
            "spec.tiers[0].podOverrides.labels: is wrong",
        ),
    ],
)
def test_a_finding_is_read_after_its_path_unless_it_names_it(found: Finding, text: str) -> None:
    assert str(found) == text
