"""The registry of generated files: what is committed is what the code renders."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import generate
from generate.resource import resource_reference
from reasoningpool.api.conditions import ConditionType, Reason
from reasoningpool.cli import main


@pytest.mark.parametrize("path", generate.GENERATED)
def test_a_generated_file_is_what_the_code_renders(path: str) -> None:
    assert (generate.ROOT / path).read_text() == generate.GENERATED[path](), "run make generate"


def test_rendering_twice_gives_the_same_text() -> None:
    assert all(render() == render() for render in generate.GENERATED.values())


def test_stale_and_missing_files_are_named_and_written_as_a_whole(tmp_path: Path) -> None:
    assert generate.stale(tmp_path) == tuple(generate.GENERATED)
    assert generate.write(tmp_path) == tuple(generate.GENERATED)
    assert generate.stale(tmp_path) == generate.write(tmp_path) == ()
    (tmp_path / "docs/reference/cli.md").write_text("edited by hand\n")
    assert generate.stale(tmp_path) == generate.write(tmp_path) == ("docs/reference/cli.md",)
    assert not list(tmp_path.rglob("*.new"))


def test_every_condition_and_reason_has_a_row() -> None:
    text = generate.GENERATED["docs/reference/conditions.md"]()
    named = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert sorted(named) == sorted([*ConditionType, *Reason])


def test_links_of_the_resource_reference_lead_to_its_sections() -> None:
    lines = resource_reference().splitlines()
    anchors = {"".join(filter(str.isalnum, line[3:].lower())) for line in lines if line.startswith("## ")}
    links = {part.split(")")[0] for line in lines for part in line.split("](#")[1:]}
    assert links
    assert links <= anchors


def test_help_keeps_the_example_as_a_block() -> None:
    text = CliRunner().invoke(main, ["explain", "--help"]).output
    assert "\n      kubectl get rp -o yaml | reasoningpool explain -\n" in text
    assert "\\b" not in text
