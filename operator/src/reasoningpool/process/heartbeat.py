"""When each watch was last heard of: an answered list, an opened stream, any byte on it (bookmarks included)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final

# A watcher opens its stream anew after the time of silence. Twice that, and the new one came to nothing either.
_GRACE_SECONDS: Final = 10.0
# How often to look, and how long after the liveness probe began to fail the process ends by itself.
_LOOK_SECONDS: Final = 5.0
_UNHEARD_SECONDS: Final = 60.0


class Heartbeats:
    """Last signs of life by URL path."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.dead_after = 2 * silence + _GRACE_SECONDS
        self._clock = clock
        self._last: dict[str, float] = {}
        self._listed: set[str] = set()
        # What ended a watch for good, in words; empty while nothing has.
        self.broken = ""
        self._broken = asyncio.Event()
        self._on_refused: dict[str, Callable[[], None]] = {}
        # Called when a path is listed once more: its watch had expired, and no watch tells what was deleted meanwhile.
        self.on_gap: Callable[[], None] = lambda: None

    def expect(self, paths: Iterable[str], *, on_refused: Callable[[], None] | None = None) -> None:
        """These paths are watched from now on.

        With `on_refused`, an answer of 403 or 404 does not end the watcher: this is called, and the watcher waits
        until whoever was called ends this watch.
        """
        now = self._clock()
        for path in paths:
            self._last.setdefault(path, now)
            if on_refused is not None:
                self._on_refused[path] = on_refused

    def forget(self, paths: Iterable[str]) -> None:
        """These paths are not watched any more; what is under way on them may still be refused."""
        for path in paths:
            self._last.pop(path, None)

    def note(self, path: str) -> None:
        """A sign of life; paths that nobody expects are not kept."""
        if path in self._last:
            self._last[path] = self._clock()

    def note_list(self, path: str) -> None:
        """The watcher begins a list of this path."""
        if path not in self._last:
            return
        if path in self._listed:
            self.on_gap()
        self._listed.add(path)

    def dead(self) -> list[str]:
        """Paths not heard of for too long, with the seconds since."""
        now = self._clock()
        return [f"{path} ({now - at:.0f} s)" for path, at in sorted(self._last.items()) if now - at > self.dead_after]

    def break_off(self, path: str, why: str) -> None:
        """The watch of this path was ended by an error that Kopf does not come back from."""
        if path in self._last:
            self.broken = self.broken or f"{path}: {why}"
            self._broken.set()

    async def wait_dead(self) -> None:
        """Wait until a watch was broken off, or the liveness probe has failed for so long that nobody acts on it."""
        dead_since: float | None = None
        while not self._broken.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._broken.wait()
            dead_since = (dead_since or self._clock()) if self.dead() else None
            if dead_since is not None and self._clock() - dead_since >= _UNHEARD_SECONDS:
                return

    def refused(self, path: str) -> Callable[[], None] | None:
        """What to call when a request for this path is refused; None where that ends the watcher."""
        return self._on_refused.get(path)
