"""Where built things are kept between runs, and how two runs at once do not get in each other's way."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str], None]

# An install takes a minute or two, more on a slow line; who waits for another one longer than this says so and stops.
_LOCK_DEADLINE_S = 1800.0
_LOCK_POLL_S = 0.5


def print_progress(line: str) -> None:
    """Progress for people: a line on standard error, at once."""
    print(f"engine: {line}", file=sys.stderr, flush=True)


def root() -> Path:
    """`$REASONINGPOOL_CACHE`, else `reasoningpool` in the user's cache directory."""
    if chosen := os.environ.get("REASONINGPOOL_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "reasoningpool"


def content_hash(*parts: bytes | str) -> str:
    """16 hexadecimal digits that change whenever one of the parts does."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold an exclusive lock on `path`. It is the kernel's, so it goes with its process however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_DEADLINE_S
    with path.open("w") as file:
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process has held {path} for {_LOCK_DEADLINE_S:.0f} s") from None
                if not told:
                    progress(f"waiting for another process that holds {path.name}")
                    told = True
                time.sleep(_LOCK_POLL_S)
        yield


def make_world_readable(directory: Path) -> None:
    """Pods mount these files and do not run as root, so all may read them (and nobody's umask decides)."""
    for folder, _folders, files in os.walk(directory):
        for entry in (Path(folder), *(Path(folder, name) for name in files)):
            mode = entry.lstat().st_mode
            if stat.S_ISLNK(mode):
                continue
            executable = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
            wanted = stat.S_IMODE(mode) | (0o555 if executable else 0o444)
            if wanted != stat.S_IMODE(mode):
                entry.chmod(wanted)
