"""Documents stay true: the list of conditions and reasons, and what each example says it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reasoningpool.api.conditions import FAILURE_REASONS, ConditionType, Reason
from reasoningpool.cli.files import read_pools
from reasoningpool.planning.offline import offline_pool
from reasoningpool.planning.status.conditions import FOLDED
from reasoningpool.resolution.resolve import ResolutionSettings

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "operations.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def rows(heading: str) -> dict[str, list[str]]:
    """The table below a heading: the name in the first cell, and the other cells."""
    section = TEXT.split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0]
    cells = (line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `"))
    return {first.strip().strip("`"): [cell.strip() for cell in rest] for first, *rest in cells}


def test_every_condition_is_explained_and_whether_it_counts_for_ready() -> None:
    found = rows("Conditions")
    assert list(found) == [str(kind) for kind in ConditionType]
    assert {name for name, cells in found.items() if cells[-1] == "yes"} == {str(kind) for kind in FOLDED}


def test_every_reason_is_explained_once() -> None:
    sections = [rows(name) for name in ("Failures", "The spec", "Progress", "Others")]
    listed = [reason for section in sections for reason in section]
    assert sorted(listed) == sorted(str(reason) for reason in Reason)
    assert all(all(section.values()) for section in sections)


def test_failures_are_those_that_send_a_warning_and_each_has_advice() -> None:
    found = rows("Failures")
    assert set(found) == {str(reason) for reason in FAILURE_REASONS}
    assert all(means and advice for means, advice in found.values())


def test_no_reason_is_named_in_the_text_that_does_not_exist() -> None:
    named = set(re.findall(r"^\| `([A-Z]\w+)` \|", TEXT, re.MULTILINE))
    assert named == {str(reason) for reason in Reason} | {str(kind) for kind in ConditionType}


def named(node: Any) -> Iterator[str]:
    """What must exist beside the pool: Secrets, claims, classes and node labels that a manifest names."""
    if isinstance(node, list):
        for entry in node:
            yield from named(entry)
    elif isinstance(node, dict):
        for field, value in node.items():
            if field in {"priorityClassName", "runtimeClassName", "claimName", "secretName", "storageClassName"}:
                yield str(value)
            elif field in {"secretKeyRef", "secretRef", "configMapKeyRef", "configMapRef"}:
                yield str(value["name"])
            elif field == "nodeSelector":
                yield from (f"{label}={wanted}" for label, wanted in value.items())
            elif field == "volumeClaimTemplates" and value:
                yield "StorageClass"
            else:
                yield from named(value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_at_its_top_what_it_needs(path: Path) -> None:
    (read,) = read_pools(str(path))
    manifests = offline_pool(read.pool, ResolutionSettings()).manifests
    comment = path.read_text().split("\napiVersion", 1)[0]
    assert "\n# Needs: " in comment
    missing = sorted({name for name in named(list(manifests)) if name not in comment})
    assert not missing


def test_the_examples_are_whole_pools() -> None:
    assert all(yaml.safe_load(path.read_text())["kind"] == "ReasoningPool" for path in EXAMPLES)
    assert len(EXAMPLES) >= 6
