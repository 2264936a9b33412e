"""Every example, rendered and explained as the command line shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from reasoningpool.api.status import SizingStatus
from reasoningpool.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_example_renders_to_its_golden_manifests(name: str, golden: Callable[[str, str], None]) -> None:
    text = run("render", str(EXAMPLES / f"{name}.yaml"))
    golden(f"{name}.render.yaml", text)
    documents = list(yaml.safe_load_all(text))
    kinds = {"ServiceAccount", "Service", "StatefulSet", "PodDisruptionBudget"}
    gateway = {"ConfigMap", "Deployment"} if "gateway" in name else set()
    assert {document["kind"] for document in documents} == kinds | gateway


@pytest.mark.parametrize("name", NAMES)
def test_example_is_explained_as_in_its_golden_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.explain.txt", run("explain", str(EXAMPLES / f"{name}.yaml")))


@pytest.mark.parametrize("name", NAMES)
def test_explained_numbers_have_the_keys_of_the_status(name: str) -> None:
    document = json.loads(run("explain", "-o", "json", str(EXAMPLES / f"{name}.yaml")))
    for tier in document["tiers"]:
        assert SizingStatus.model_validate(tier["sizing"]).model_dump(by_alias=True, mode="json") == tier["sizing"]
        assert {
            "kvBytesPerToken", "kvPoolBytes", "usableKVTokens", "footprintTokens", "meanResidentTokens", "maxNumSeqs",
            "maxModelLen", "limitedBy", "shutdownTimeoutSeconds", "terminationGracePeriodSeconds",
        } <= tier["sizing"].keys()  # fmt: skip


def test_two_tier_example_has_at_most_25_lines() -> None:
    text = (EXAMPLES / "qwen3-32b-two-tiers.yaml").read_text()
    assert len(text.splitlines()) <= 25
