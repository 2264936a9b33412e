"""Rows of a log into arrays, each value checked on the way."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reasoningpool.capacity.columns import Columns, Role
from reasoningpool.capacity.errors import LogError
from reasoningpool.capacity.fields import PER_SECOND, FieldError, TimeUnit, guessed_unit, seconds, token_count
from reasoningpool.capacity.log import MOST_TOKENS, Names, RequestLog

if TYPE_CHECKING:
    from reasoningpool.capacity.log import Floats, Ints

_MOST_NAMES: Final = 64
_COUNTS: Final = (Role.PROMPT, Role.THINKING, Role.ANSWER, Role.OUTPUT)
_TEXTS: Final = (Role.EFFORT, Role.TIER)
_PLAIN: Final = frozenset({int, str})


class Collector:
    """Takes rows, gives a `RequestLog`; 4 bytes per count, 8 per time, 4 per name."""

    def __init__(self, columns: Columns, time_unit: TimeUnit | None) -> None:
        self._columns = columns
        self._unit = time_unit
        self._counts = {role: array("i") for role in _COUNTS if role in columns}
        self._times = array("d")
        self._plain_times: bool | None = None
        self._names: dict[Role, dict[str, int]] = {role: {} for role in _TEXTS if role in columns}
        self._codes = {role: array("i") for role in self._names}
        self._without_thinking = 0
        self._lines = array("q")  # of every row, for what shows only when all columns are there

    def taker(self, roles: Sequence[Role]) -> Callable[[Sequence[Any], int], None]:
        """A function that takes the values of one row, in the order of `roles`, and its line."""
        takers = [self._take_count(role) if role in _COUNTS else self._take_other(role) for role in roles]

        def take(values: Sequence[Any], line: int) -> None:
            for value, taker, role in zip(values, takers, roles, strict=True):
                try:
                    taker(value)
                except FieldError as error:
                    raise LogError(f"column {self._columns.of[role]!r} {error}", line=line) from None
            append_line(line)

        append_line = self._lines.append
        return take

    def _take_count(self, role: Role) -> Callable[[Any], None]:
        append = self._counts[role].append

        def take(value: Any) -> None:
            # The usual case is tried first: a million rows spend their time here.
            try:
                number = int(value) if type(value) in _PLAIN else token_count(value)
            except ValueError:
                number = token_count(value)
            append(number if 0 <= number <= MOST_TOKENS else token_count(value))

        def take_thinking(value: Any) -> None:
            if value is None or value == "":
                self._without_thinking += 1
                append(0)
            else:
                take(value)

        return take_thinking if role is Role.THINKING else take

    def _take_other(self, role: Role) -> Callable[[Any], None]:
        return self._take_time if role is Role.TIME else self._take_name(role)

    def _take_time(self, value: Any) -> None:
        moment, plain = seconds(value)
        if self._plain_times is None:
            self._plain_times = plain
        elif plain is not self._plain_times:
            raise FieldError(f"is {value!r:.40}; the times before it are {'dates' if plain else 'numbers'}")
        if not abs(moment) < float("inf"):
            raise FieldError(f"is {value!r:.40}, not an arrival time")
        self._times.append(moment)

    def _take_name(self, role: Role) -> Callable[[Any], None]:
        names, append = self._names[role], self._codes[role].append

        def take(value: Any) -> None:
            text = "" if value is None else str(value).strip().lower()
            code = names.get(text)
            if code is None:
                if len(names) == _MOST_NAMES:
                    raise FieldError(f"has more than {_MOST_NAMES} different values, such as {text[:40]!r}")
                code = names[text] = len(names)
            append(code)

        return take

    def log(self) -> RequestLog:
        """Everything taken, in order of arrival."""
        counts = {role: np.frombuffer(values, dtype=np.int32) for role, values in self._counts.items() if values}
        if not counts:
            raise LogError("holds no requests, only a header")
        output, thinking, notes = self._output(counts)
        if self._without_thinking:
            notes.append(f"{self._without_thinking:,} requests without a number of thinking tokens count as 0")
        scaled, time_notes = self._scaled_times()
        names = {
            role: Names(values=tuple(self._names[role]), codes=np.frombuffer(codes, dtype=np.int32))
            for role, codes in self._codes.items()
        }
        whole = RequestLog(
            output=output,
            prompt=counts.get(Role.PROMPT),
            thinking=thinking,
            seconds=scaled,
            effort=names.get(Role.EFFORT),
            tier=names.get(Role.TIER),
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
        if Role.TIME not in self._columns:
            return None, []
        raw = np.frombuffer(self._times, dtype=np.float64)
        if not self._plain_times:
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
