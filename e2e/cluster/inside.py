"""Running a command inside the namespaces of a cluster's node."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from cluster import processes, tools
from cluster.errors import ClusterError

if TYPE_CHECKING:
    from cluster.state import State


def run(state: State, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command (one of the host's or of the unpacked tools) inside the node."""
    holder = processes.of_component(state, processes.HOLDER).pid
    result = subprocess.run(
        ["nsenter", f"--target={holder}", "--net", "--mount", "--pid", "--", *command],
        cwd="/",
        env=os.environ | tools.ensure().environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if check and result.returncode:
        raise ClusterError(
            f"{' '.join(command)} failed in the node ({result.returncode}): {result.stderr or result.stdout}"
        )
    return result
