"""Rows of a log into arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reasoningpool.requests.column_values import Counts, Times, Words
from reasoningpool.requests.columns import Columns, Role
from reasoningpool.requests.errors import LogError
from reasoningpool.requests.log import Names, RequestLog
from reasoningpool.requests.log_fields import PER_SECOND, TimeUnit, guessed_unit

if TYPE_CHECKING:
    from reasoningpool.requests.log import Floats, Ints

_COUNTS: Final = (Role.PROMPT, Role.THINKING, Role.ANSWER, Role.OUTPUT)
_TEXTS: Final = (Role.EFFORT, Role.TIER)
_BATCH: Final = 4_096  # rows; few enough to stay in the processor's cache


class Collector:
    """Takes rows, gives a `RequestLog`: 4 bytes per count or name, 8 per time and line."""

    def __init__(self, columns: Columns, time_unit: TimeUnit | None) -> None:
        self._columns = columns
        self._unit = time_unit
        self._counts = {
            role: Counts(name, missing_is_zero=role is Role.THINKING)
            for role, name in columns.of.items()
            if role in _COUNTS
        }
        self._words = {role: Words(name) for role, name in columns.of.items() if role in _TEXTS}
        self._times = Times(columns.of[Role.TIME]) if Role.TIME in columns else None
        self._lines = array("q")  # of every row, for what shows only when all columns are there

    def take_all(self, rows: Iterator[tuple[Sequence[Any], int]], places: Mapping[Role, int]) -> None:
        """Take rows with their lines; `places` tells where in a row a role stands.

        What is wrong with an earlier row comes before what ends the reading.
        """
        while True:
            batch: list[tuple[Sequence[Any], int]] = []
            ended: LogError | None = None
            try:
                for row in islice(rows, _BATCH):
                    batch.append(row)  # noqa: PERF402 - rows before an error are kept
            except LogError as error:
                ended = error
            if batch:
                self._take(batch, places)
            if ended is not None:
                raise ended
            if len(batch) < _BATCH:
                return

    def _take(self, batch: Sequence[tuple[Sequence[Any], int]], places: Mapping[Role, int]) -> None:
        rows, lines = zip(*batch, strict=True)
        columns = list(zip(*rows, strict=True))
        found = []
        for role, place in places.items():
            try:
                self._column(role).extend(columns[place], lines)
            except LogError as error:
                found.append(error)
        if found:
            raise min(found, key=lambda error: error.line or 0)
        self._lines.extend(lines)

    def _column(self, role: Role) -> Counts | Times | Words:
        if role is Role.TIME:
            assert self._times is not None  # its column was chosen
            return self._times
        return self._counts[role] if role in _COUNTS else self._words[role]

    def log(self) -> RequestLog:
        """Everything taken, in order of arrival."""
        if not self._lines:
            raise LogError("holds no requests, only a header")
        counts: dict[Role, Ints] = {
            role: np.frombuffer(column.values, dtype=np.int32) for role, column in self._counts.items()
        }
        output, thinking, notes = self._output(counts)
        missing = sum(column.missing for column in self._counts.values())
        if missing:
            notes.append(f"{missing:,} requests without a number of thinking tokens count as 0")
        scaled, time_notes = self._scaled_times()
        words = {
            role: Names(values=tuple(column.known), codes=np.frombuffer(column.codes, dtype=np.int32))
            for role, column in self._words.items()
        }
        whole = RequestLog(
            output=output,
            prompt=counts.get(Role.PROMPT),
            thinking=thinking,
            seconds=scaled,
            effort=words.get(Role.EFFORT),
            tier=words.get(Role.TIER),
            runs=len(output),
            notes=(f"columns: {self._columns.words}", *notes, *time_notes),
        )
        return _ordered(whole)

    def _output(self, counts: Mapping[Role, Ints]) -> tuple[Ints, Ints | None, list[str]]:
        """All output, the thinking part of it where the columns tell, and what was assumed."""
        total, thinking, answer = (counts.get(role) for role in (Role.OUTPUT, Role.THINKING, Role.ANSWER))
        if total is None:
            assert answer is not None  # `choose` asks for one of the two
            if thinking is not None:
                return thinking + answer, thinking, []
            return answer, None, [f"the column {self._columns.of[Role.ANSWER]!r} is taken as all that was generated"]
        if thinking is None and answer is not None:
            thinking = total - answer
        if thinking is None:
            return total, None, []
        wrong = (thinking > total) | (thinking < 0)
        if bool(wrong.any()):
            row = int(wrong.argmax())
            part = Role.THINKING if Role.THINKING in counts else Role.ANSWER
            message = f"more {part} tokens ({int(counts[part][row]):,}) than output tokens ({int(total[row]):,})"
            raise LogError(message, line=self._lines[row])
        return total, thinking, []

    def _scaled_times(self) -> tuple[Floats | None, list[str]]:
        if self._times is None:
            return None, []
        raw = np.frombuffer(self._times.values, dtype=np.float64)
        if not self._times.plain:
            return raw, []
        unit, notes = self._unit or guessed_unit(float(raw.max())), []
        if unit is None:
            unit = TimeUnit.SECONDS
            notes.append("arrival times are taken as seconds (--time-unit says otherwise)")
        elif self._unit is TimeUnit.MILLISECONDS:
            notes.append("arrival times are milliseconds")
        return raw / PER_SECOND[unit], notes


def _ordered(log: RequestLog) -> RequestLog:
    """In order of arrival from second 0, without requests that generated nothing."""
    answered = log.output > 0
    silent = len(log) - int(answered.sum())
    if silent == len(log):
        raise LogError("holds no request that generated a token")
    if silent:
        log = log.rows(answered)
        log = replace(log, notes=(*log.notes, f"{silent:,} requests that generated nothing are left out"))
    if log.seconds is None:
        return log
    if bool((np.diff(log.seconds) < 0).any()):
        log = log.rows(np.argsort(log.seconds, kind="stable"))
    assert log.seconds is not None  # rows keep their columns
    return replace(log, seconds=log.seconds - log.seconds[0])
