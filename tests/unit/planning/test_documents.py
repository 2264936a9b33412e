"""Documents stay true: what conditions and reasons mean, and what each example says it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reasoningpool.api.conditions import FAILURE_REASONS, ConditionType, Reason
from reasoningpool.cli.files import read_pools
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def test_every_condition_and_reason_says_what_it_means_and_each_failure_what_to_do() -> None:
    assert all(kind.meaning for kind in ConditionType)
    assert all(reason.meaning for reason in Reason)
    assert FAILURE_REASONS
    assert all(reason.advice for reason in FAILURE_REASONS)


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
