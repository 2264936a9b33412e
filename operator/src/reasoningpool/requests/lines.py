"""Text lines out of a file that may be compressed, cut off or no text at all."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, cast

from typing_extensions import override

from reasoningpool.requests.errors import LogError

_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 20


class Lines(Iterable[str]):
    """The lines of a UTF-8 file with their ends, plain or gzip; a mark at the start of the file is dropped.

    `number` is that of the last line handed out, from 1. All iterators are one: each goes on where another stopped.
    They raise `LogError` with the line for what is no text, a line of more than 1 MiB, and a gzip that ends early.
    """

    def __init__(self, stream: BinaryIO) -> None:
        plain = cast(
            "io.BufferedReader",
            stream if hasattr(stream, "peek") else io.BufferedReader(cast("io.RawIOBase", stream)),
        )
        packed = plain.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
        self._file = io.BufferedReader(_Gunzip(plain), _CHUNK) if packed else plain
        self._lines = self._read()
        self.number = 0

    @override
    def __iter__(self) -> Iterator[str]:
        return self._lines

    def _read(self) -> Iterator[str]:
        readline = self._file.readline
        while True:
            try:
                raw = readline(_LONGEST_LINE)
            except EOFError:
                raise LogError("the gzip data ends early: the file is cut off", line=self.number + 1) from None
            except zlib.error as error:
                raise LogError(f"the gzip data is damaged: {error}", line=self.number + 1) from None
            if not raw:
                return
            self.number += 1
            if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                raise LogError(f"the line is longer than {_LONGEST_LINE // 2**20} MiB", line=self.number)
            try:
                text = raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f"{error.reason} at byte {error.start + 1}"
                raise LogError(f"is not UTF-8 text: {where}", line=self.number) from None
            if "\0" in text:
                raise LogError("is not text: it contains zero bytes", line=self.number)
            yield text


class _Gunzip(io.RawIOBase):
    """Unpacked gzip, bounded in memory.

    `gzip.GzipFile` drops what it has unpacked when the data ends early; here it is read first, so that the line
    where the file is cut off is known.
    """

    def __init__(self, packed: io.BufferedReader) -> None:
        self._packed = packed
        self._inflate = _inflater()
        self._input = b""

    @override
    def readable(self) -> bool:
        """Always."""
        return True

    @override
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # the buffers readers pass
        """Fill the buffer; EOFError when the data ends inside a member."""
        while True:
            if self._inflate.eof:  # another member may follow
                self._input = self._inflate.unused_data or self._packed.read(_CHUNK)
                if not self._input:
                    return 0
                self._inflate = _inflater()
            elif not self._input:
                self._input = self._packed.read(_CHUNK)
                if not self._input:
                    raise EOFError
            part = self._inflate.decompress(self._input, len(buffer))
            self._input = self._inflate.unconsumed_tail
            if part:
                buffer[: len(part)] = part
                return len(part)


def _inflater() -> zlib._Decompress:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
