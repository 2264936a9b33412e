"""Where the local cluster keeps things, and how it writes them so that a crash leaves no half file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).resolve().parent


def cache_root() -> Path:
    """The folder that holds binaries, unpacked tools and clusters."""
    if explicit := os.environ.get("REASONINGPOOL_CACHE"):
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "reasoningpool"


def clusters_root() -> Path:
    """The folder with one folder per cluster."""
    return cache_root() / "clusters"


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock `name` of this cache; it is released by the kernel when the holder dies."""
    folder = cache_root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that holds {file.name}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
