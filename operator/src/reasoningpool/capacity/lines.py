"""Text lines out of a file that may be compressed, cut off or no text at all."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

from typing_extensions import override

from reasoningpool.capacity.errors import LogError

_GZIP: Final = b"\x1f\x8b"
_LONGEST_LINE: Final = 1 << 20


class Lines(Iterator[str]):
    """The lines of a UTF-8 file, plain or gzip; `number` is that of the last line handed out, from 1.

    Raises `LogError` with that line for what is no text, a line of more than 1 MiB, and a gzip that ends early.
    """

    def __init__(self, stream: BinaryIO) -> None:
        buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast("io.RawIOBase", stream))
        start = cast("io.BufferedReader", buffered).peek(len(_GZIP))[: len(_GZIP)]
        packed = start == _GZIP
        self._readline = (
            io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=buffered)), 1 << 18).readline
            if packed
            else buffered.readline
        )
        self.number = 0

    @override
    def __next__(self) -> str:
        """The next line with its end; a mark at the start of the file is dropped."""
        try:
            raw = self._readline(_LONGEST_LINE)
        except EOFError:
            raise LogError("the gzip data ends early: the file is cut off", line=self.number + 1) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise LogError(f"the gzip data is damaged: {error}", line=self.number + 1) from None
        if not raw:
            raise StopIteration
        self.number += 1
        if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
            raise LogError(f"the line is longer than {_LONGEST_LINE // 2**20} MiB", line=self.number)
        try:
            text = raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise LogError(f"is no UTF-8 text: {error.reason} at byte {error.start + 1}", line=self.number) from None
        if "\0" in text:
            raise LogError("is no text: it holds zero bytes", line=self.number)
        return text
