"""HTTP responses of the watcher: signs of life are noted, and a watch that expired is told as kopf expects it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
from typing_extensions import override

# What an API server begins an event of the type ERROR with; within objects no value can look like it.
_ERROR: Final = b'{"type":"ERROR","object":{"kind":"Status"'
_GONE: Final = re.compile(rb'"code":\s?410\b')
_MAX_SAID: Final = 500
_EXPIRED: Final = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}\n'


# What a watch meets whose kind is gone, or may not be read any more.
_REFUSALS: Final = frozenset({403, 404})


def noting_response(
    note: Callable[[str], None],
    note_list: Callable[[str], None],
    refused: Callable[[str], Callable[[], None] | None] = lambda _: None,
    break_off: Callable[[str, str], None] = lambda _path, _why: None,
) -> type[aiohttp.ClientResponse]:
    """A response type for the watcher's HTTP session.

    `note` gets the path of every answer and of every chunk of a watch, `note_list` that of a list as it begins.
    `break_off` gets the path of a watch that kopf does not come back from, and why.
    `refused` gives what to call when a path is answered with 403 or 404; the request then waits until it is cancelled.
    """

    class NotingResponse(aiohttp.ClientResponse):
        @override
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            path, is_watch = self.url.path, "watch" in self.url.query
            if self.status < 300:
                note(path)
                if is_watch:
                    self.content = _NotingReader(  # type: ignore[assignment]
                        self.content, lambda: note(path), lambda why: break_off(path, why)
                    )
                elif "continue" not in self.url.query:
                    note_list(path)
            elif self.status == 410 and is_watch:
                # kopf lists anew when this is said inside the stream, and ends when it is said before it.
                self.status = 200
                self.content = _SaidReader(self.content, _EXPIRED)  # type: ignore[assignment]
            elif self.status in _REFUSALS and (tell := refused(path)) is not None:
                # kopf ends all watches when one is refused.
                tell()
                await asyncio.Event().wait()
            elif self.status == 404:
                break_off(path, "not served any more (HTTP 404)")
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
