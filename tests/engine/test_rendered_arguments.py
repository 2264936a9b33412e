"""Every rendered argument list is what vLLM's own parser takes, and means what the plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.arguments import ParseResult, known_flags_033, parse
from reasoningpool.api.findings import Findings
from reasoningpool.cli.files import read_pools
from reasoningpool.planning.outcome import pool_outcome
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.render import engine_arguments
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from reasoningpool.sizing import SizingPlan
from reasoningpool.vllm.flag_table import spellings
from unit.render import builders as b
from unit.render.test_arguments import EVERYTHING
from unit.render.test_manifests import TIERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reasoningpool.resolution.types import EffectiveTier

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
VERSION_032 = (0, 32, 0)
TEMPLATE = "/etc/reasoningpool/chat-template/template.jinja"


def example_tiers() -> Iterator[tuple[str, EffectiveTier, SizingPlan]]:
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        for read in read_pools(str(path)):
            effective = resolve(read.pool, ResolutionSettings())
            for outcome in pool_outcome(
                read.pool, effective, Snapshot(pool={"metadata": {"name": read.pool.name}}), Findings()
            ).tiers:
                assert isinstance(outcome.sizing, SizingPlan)
                yield f"{path.stem}/{outcome.tier.name}", outcome.tier, outcome.sizing


def cases() -> dict[str, tuple[EffectiveTier, SizingPlan]]:
    own = {name: (tier, b.sizing_plan()) for name, tier in TIERS.items() if name != "old engine"}
    own["everything"] = (EVERYTHING, b.sizing_plan())
    own["no prefix cache"] = (b.tier(engine=b.engine(prefix_caching=False)), b.sizing_plan())
    return own | {name: (tier, plan) for name, tier, plan in example_tiers()}


CASES = cases()


def rendered(name: str) -> list[str]:
    tier, plan = CASES[name]
    arguments = engine_arguments(replace(tier, engine=replace(tier.engine, version=VERSION_032)), plan)
    # The parser opens the template's file, which is in a pod only.
    return [argument.replace(TEMPLATE, __file__) for argument in arguments]


@pytest.fixture(scope="module")
def parsed() -> dict[str, ParseResult]:
    """All lists in one run of vLLM's parser, which takes ten seconds to load."""
    lists = {name: rendered(name) for name in CASES}
    return dict(zip(lists, parse(list(lists.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_vllm_takes_the_rendered_arguments_and_reads_the_plan_out_of_them(
    parsed: dict[str, ParseResult], name: str
) -> None:
    result = parsed[name]
    assert result.error is None
    values: dict[str, Any] = result.values or {}
    tier, plan = CASES[name]
    assert values["max_num_seqs"] == plan.max_num_seqs
    assert values["max_model_len"] == plan.max_model_len
    assert values["max_num_batched_tokens"] == plan.max_num_batched_tokens
    assert values["tensor_parallel_size"] == plan.tensor_parallel_size
    assert values["shutdown_timeout"] == plan.shutdown_timeout_seconds
    assert values["served_model_name"] == [tier.model.served_name]
    assert values["kv_cache_memory_bytes"] == tier.engine.kv_cache_memory_bytes
    assert values["enable_prefix_caching"] is tier.engine.prefix_caching


def test_every_rendered_flag_is_in_the_help_of_033() -> None:
    known = known_flags_033()
    for name, (tier, plan) in CASES.items():
        for argument in engine_arguments(tier, plan):
            if argument.startswith("--"):
                assert argument.partition("=")[0] in known, f"{name}: {argument}"


def test_flag_table_of_the_product_agrees_with_the_help() -> None:
    known, own = known_flags_033(), spellings()
    assert set(known) <= set(own)
    takes = {"none": (False, False), "one": (True, False), "many": (True, True), "optional": (True, False)}
    differing = [
        spelling
        for spelling, flag in known.items()
        if (flag.value, flag.many) != takes[own[spelling].takes] or flag.canonical != own[spelling].name
    ]
    assert differing == []
