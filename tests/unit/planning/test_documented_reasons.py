"""docs/operations.md lists every condition and reason, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from reasoningpool.api.conditions import FAILURE_REASONS, ConditionType, Reason
from reasoningpool.planning.conditions import FOLDED

TEXT = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


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
