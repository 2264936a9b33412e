"""Progress on standard error: one line that is rewritten on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Self

QUIET_SECONDS = 15.0  # between two lines where standard error is a file


class Progress:
    """What is being done and for how long, from `with` to its end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._start = time.monotonic()
        self._shown = 0.0
        self._tty = sys.stderr.isatty()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def __enter__(self) -> Self:
        self.update("started")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.update("failed" if kind else "done", last=True)

    def update(self, what: str, *, last: bool = False) -> None:
        """Say what is going on; cheap enough to be called often."""
        now = time.monotonic()
        if not last and self._shown and now - self._shown < (0.2 if self._tty else QUIET_SECONDS):
            return
        self._shown = now
        text = f"{self._title}: {what} ({clock(self.elapsed)})"
        if self._tty:
            print(f"\r\x1b[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """`4.2 s` or `3 min 05 s`.

    >>> clock(4.21), clock(185)
    ('4.2 s', '3 min 05 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
