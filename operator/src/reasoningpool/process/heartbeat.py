"""When each watch was last heard of: an answered list, an opened stream, any byte on it (bookmarks included)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import aiohttp
from typing_extensions import override

# A watcher opens its stream anew after the time of silence. Twice that, and the new one came to nothing either.
_GRACE_SECONDS: Final = 10.0
# What a watch meets whose kind is gone, or may not be read any more.
_REFUSALS: Final = frozenset({403, 404})
_EXPIRED: Final = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n'


class Heartbeats:
    """Last signs of life by URL path."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.dead_after = 2 * silence + _GRACE_SECONDS
        self._clock = clock
        self._last: dict[str, float] = {}
        self._listed: set[str] = set()
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

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """A response type for the watcher's HTTP session that notes what comes in."""
        note, note_list, refusals = self.note, self.note_list, self._on_refused

        class NotingResponse(aiohttp.ClientResponse):
            @override
            async def start(self, connection: Any) -> aiohttp.ClientResponse:
                await super().start(connection)
                path, is_watch = self.url.path, "watch" in self.url.query
                if self.status < 300:
                    note(path)
                    if is_watch:
                        self.content = _NotingReader(self.content, lambda: note(path))  # type: ignore[assignment]
                    elif "continue" not in self.url.query:
                        note_list(path)
                elif self.status == 410 and is_watch:
                    # kopf lists anew when this is said inside the stream, and ends when it is said before it.
                    self.status = 200
                    self.content = _SaidReader(self.content, _EXPIRED)  # type: ignore[assignment]
                elif self.status in _REFUSALS and path in refusals:
                    # kopf ends all watches when one is refused.
                    refusals[path]()
                    await asyncio.Event().wait()
                return self

        return NotingResponse


class _NotingReader:
    """A stream reader that tells of each chunk it hands on."""

    def __init__(self, reader: aiohttp.StreamReader, note: Callable[[], None]) -> None:
        self._reader = reader
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for chunk in self._reader.iter_chunked(size):
            self._note()
            yield chunk


class _SaidReader(_NotingReader):
    """A stream that says one thing in place of what the server said."""

    def __init__(self, reader: aiohttp.StreamReader, said: bytes) -> None:
        super().__init__(reader, lambda: None)
        self._said = said

    @override
    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        await self._reader.read()
        yield self._said
