"""The documentation names what there is."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from reasoningpool_runtime import contract
from reasoningpool_runtime.metrics import Metrics

ROOT = Path(__file__).parents[2]
RUNTIME = (ROOT / "docs" / "runtime.md").read_text()
README = (ROOT / "runtime-image" / "README.md").read_text()
SOURCE = ROOT / "runtime-image" / "src" / "reasoningpool_runtime"


def metric_names() -> set[str]:
    registry = CollectorRegistry()
    Metrics(registry)
    return {f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in registry.collect()}


def test_every_metric_is_documented() -> None:
    # A row may name relatives by what they end with: `reasoningpool_a_b`, `..._c`.
    shortened = tuple(re.findall(r"`\.\.\.(\w+)", RUNTIME))
    missing = {name for name in metric_names() if f"`{name}" not in RUNTIME and not name.endswith(shortened)}
    assert not missing


def test_no_documented_metric_is_gone() -> None:
    assert set(re.findall(r"`(reasoningpool_\w+)", RUNTIME + README)) - {"reasoningpool_runtime"} <= metric_names()


@pytest.mark.parametrize("name", sorted(name for name in vars(contract) if name.endswith("_HEADER")))
def test_every_header_is_documented(name: str) -> None:
    assert getattr(contract, name) in RUNTIME


@pytest.mark.parametrize("name", sorted(name for name in vars(contract) if name.endswith(("_VARIABLE", "_PATH"))))
def test_what_a_pod_needs_is_documented(name: str) -> None:
    assert getattr(contract, name) in README


def test_every_reason_of_a_refusal_is_documented() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    reasons = set(re.findall(r'RefusalError\(\s*\d+,\s*"(\w+)"', text)) | set(
        re.findall(r'_unavailable\("(\w+)"', text)
    )
    assert len(reasons) > 8
    assert {reason for reason in reasons if f"`{reason}`" not in RUNTIME} == set()


def test_nothing_of_the_operator_is_imported() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) reasoningpool\b", path.read_text(), re.MULTILINE), path
