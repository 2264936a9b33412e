"""The way to a tier from this machine: `kubectl port-forward`, as a user would do it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from typing import TYPE_CHECKING

from cluster import kubectl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.core import Cluster


@contextlib.contextmanager
def forwarded(cluster: Cluster, namespace: str, service: str, port: int = 8000) -> Iterator[str]:
    """The base URL of a Service, forwarded to a free loopback port."""
    command = [
        kubectl.binary(), "--kubeconfig", str(cluster.kubeconfig), "-n", namespace,
        "port-forward", "--address", "127.0.0.1", f"service/{service}", f":{port}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found is None:
                msg = f"port-forward to {service} failed: {line.strip()}"
                raise ConnectionError(msg)
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.terminate()
