"""When each watch was last heard of: an answered list, an opened stream, any byte on it (bookmarks included)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import aiohttp
from typing_extensions import override

# A watcher opens its stream anew after the time of silence. Twice that, and the new one came to nothing either.
_GRACE_SECONDS: Final = 10.0
# How often to look, and how long after the liveness probe began to fail the process ends by itself.
_LOOK_SECONDS: Final = 5.0
_UNHEARD_SECONDS: Final = 60.0
# What an API server begins an event of the type ERROR with; within objects no value can look like it.
_ERROR: Final = b'{"type":"ERROR","object":{"kind":"Status"'
_GONE: Final = re.compile(rb'"code":\s?410\b')
_MAX_SAID: Final = 500
_EXPIRED: Final = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n'


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
        # Called when a path is listed once more: its watch had expired, and no watch tells what was deleted meanwhile.
        self.on_gap: Callable[[], None] = lambda: None

    def expect(self, paths: Iterable[str]) -> None:
        """These paths are watched from now on."""
        now = self._clock()
        for path in paths:
            self._last.setdefault(path, now)

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

    def break_off(self, what: str) -> None:
        """A watch was ended by an error that Kopf does not come back from."""
        self.broken = self.broken or what
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

    def response_class(self) -> type[aiohttp.ClientResponse]:
        """A response type for the watcher's HTTP session that notes what comes in."""
        note, note_list, break_off, is_expected = self.note, self.note_list, self.break_off, self._last.__contains__

        class NotingResponse(aiohttp.ClientResponse):
            @override
            async def start(self, connection: Any) -> aiohttp.ClientResponse:
                await super().start(connection)
                path, is_watch = self.url.path, "watch" in self.url.query
                if self.status < 300:
                    note(path)
                    if is_watch:
                        self.content = _NotingReader(self.content, lambda: note(path), break_off)  # type: ignore[assignment]
                    elif "continue" not in self.url.query:
                        note_list(path)
                elif self.status == 410 and is_watch:
                    # kopf lists anew when this is said inside the stream, and ends when it is said before it.
                    self.status = 200
                    self.content = _SaidReader(self.content, _EXPIRED)  # type: ignore[assignment]
                elif self.status == 404 and is_expected(path):
                    break_off(f"{path} is not served any more (HTTP 404)")
                return self

        return NotingResponse


class _NotingReader:
    """A stream reader that tells of each chunk it hands on."""

    def __init__(
        self,
        reader: aiohttp.StreamReader,
        note: Callable[[], None],
        break_off: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._reader = reader
        self._note = note
        self._break_off = break_off

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for chunk in self._reader.iter_chunked(size):
            self._note()
            if _ERROR in chunk and not _GONE.search(chunk):
                self._break_off(chunk[-_MAX_SAID:].decode("utf-8", errors="replace").strip())
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
