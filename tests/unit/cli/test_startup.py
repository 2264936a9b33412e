"""What the command line imports: commands without a cluster start fast because they import no client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

POOL = str(Path(__file__).parents[3] / "examples" / "qwen3-32b-two-tiers.yaml")
# Each takes from a tenth of a second to seconds to import.
CLIENTS = (
    "kopf", "kubernetes", "aiohttp", "requests", "urllib3", "prometheus_client", "prometheus_api_client", "asyncio",
    "reasoningpool.adapters", "reasoningpool.reconcile", "reasoningpool.process", "reasoningpool.simulation",
)  # fmt: skip
CALCULATION = ("numpy", "pydantic", "yaml", "reasoningpool.api.spec", "reasoningpool.sizing")

SCRIPT = """
import sys
from reasoningpool.cli import main
try:
    main({arguments!r}, standalone_mode=False)
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """Modules that a command has imported when it ends."""
    command = [sys.executable, "-c", SCRIPT.format(arguments=list(arguments))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return set(done.stderr.split())


@pytest.mark.parametrize("command", ["explain", "render"])
def test_commands_on_files_import_no_client(command: str) -> None:
    modules = imported(command, POOL)
    assert modules.isdisjoint(CLIENTS), sorted(modules & set(CLIENTS))
    assert modules.issuperset(CALCULATION)


def test_the_command_line_itself_imports_no_calculation() -> None:
    modules = imported("--version")
    assert modules.isdisjoint({*CLIENTS, *CALCULATION}), sorted(modules & {*CLIENTS, *CALCULATION})


def test_help_of_the_operator_imports_no_client() -> None:
    modules = imported("run", "--help")
    assert modules.isdisjoint({*CLIENTS, "numpy"} - {"reasoningpool.process"}), sorted(modules & set(CLIENTS))
