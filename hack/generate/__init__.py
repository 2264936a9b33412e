"""Files that are made from the code and committed: one list, written by `make generate`, compared by `make check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from generate.command_line import command_line_reference
from generate.conditions import conditions_reference
from generate.contract import contract_copy
from generate.field_reports import field_reports
from generate.resource import resource_reference
from generate.settings import settings_reference
from reasoningpool.api.crd import crd_yaml
from reasoningpool.process.rbac import rbac_manifests

ROOT: Final = Path(__file__).parents[2]

# Path below the root of the checkout, and the function that renders the whole file.
GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "crds/reasoningpool.yaml": crd_yaml,
    "docs/field-reports.md": field_reports,
    "docs/reference/cli.md": command_line_reference,
    "docs/reference/conditions.md": conditions_reference,
    "docs/reference/resource.md": resource_reference,
    "docs/reference/settings.md": settings_reference,
    "operator/deploy/rbac.yaml": rbac_manifests,
    "operator/src/reasoningpool/vllm/runtime_contract.py": contract_copy,
}


def stale(root: Path = ROOT) -> tuple[str, ...]:
    """Paths whose file is missing or is not what the code renders."""
    return tuple(path for path, render in GENERATED.items() if _read(root / path) != render())


def write(root: Path = ROOT) -> tuple[str, ...]:
    """Write what is stale; returns those paths. A file is replaced as a whole, so an interrupted run leaves no half."""
    written = stale(root)
    for path in written:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{target.name}.new")
        fresh.write_text(GENERATED[path](), encoding="utf-8")
        fresh.replace(target)
    return written


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
