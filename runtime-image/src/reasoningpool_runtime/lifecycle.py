"""Whether the server takes new requests. The state directory is shared by all API-server processes of one server."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from reasoningpool_runtime.contract import DEFAULT_STATE_DIR, STATE_DIR_VARIABLE

_DRAIN_FILE = "draining"


def state_dir() -> Path:
    return Path(os.environ.get(STATE_DIR_VARIABLE, DEFAULT_STATE_DIR))


def request_drain(directory: Path) -> None:
    """Tell every process of the server to refuse new requests from now on."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _DRAIN_FILE).touch()


class Lifecycle:
    """Draining begins with the drain file or with SIGTERM and never ends in the same process."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / _DRAIN_FILE
        with contextlib.suppress(OSError):  # a directory that cannot be written has no such file either
            self._file.unlink(missing_ok=True)  # of a container's earlier life
        self.draining = False
        self.in_flight = 0

    def begin_drain(self) -> None:
        self.draining = True

    def refresh(self) -> None:
        """Look for the drain file."""
        self.draining = self.draining or self._file.exists()
