"""When each watch was last heard of: an answered list, an opened stream, any byte on it (bookmarks included)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import aiohttp
from typing_extensions import override

# The API server sends a bookmark a minute; a watcher that heard nothing for 70 s opens its stream anew. Twice
# that, and neither the old stream nor a new one came to anything.
WATCH_SILENCE_SECONDS: Final = 70.0
DEAD_AFTER_SECONDS: Final = 2 * WATCH_SILENCE_SECONDS + 10.0


class Heartbeats:
    """Last signs of life by URL path."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """These paths are watched from now on."""
        now = self._clock()
        for path in paths:
            self._last.setdefault(path, now)

    def note(self, path: str) -> None:
        """A sign of life; paths that nobody expects are not kept."""
        if path in self._last:
            self._last[path] = self._clock()

    def dead(self, after: float = DEAD_AFTER_SECONDS) -> list[str]:
        """Paths not heard of for too long, with the seconds since."""
        now = self._clock()
        return [f"{path} ({now - at:.0f} s)" for path, at in sorted(self._last.items()) if now - at > after]

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """A response type for the watcher's HTTP session that notes what comes in."""
        note = self.note

        class NotingResponse(aiohttp.ClientResponse):
            @override
            async def start(self, connection: Any) -> aiohttp.ClientResponse:
                await super().start(connection)
                if self.status < 300:
                    path = self.url.path
                    note(path)
                    if "watch" in self.url.query:
                        self.content = _NotingReader(self.content, lambda: note(path))  # type: ignore[assignment]
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
