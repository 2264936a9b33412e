"""One column of a log at a time: many values at once where all are plain, one by one where not.

Every column has `extend(values, lines)`, which raises `LogError` with the line of the first value that is none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Final

from reasoningpool.requests.errors import LogError
from reasoningpool.requests.log import MOST_TOKENS
from reasoningpool.requests.log_fields import FieldError, seconds, token_count

_MOST_NAMES: Final = 64
_PLAIN: Final = (frozenset({int}), frozenset({str}))


class Counts:
    """Numbers of tokens, 4 bytes each."""

    def __init__(self, name: str, *, missing_is_zero: bool = False) -> None:
        self.values = array("i")
        self.missing = 0
        self._name = name
        self._missing_is_zero = missing_is_zero

    def extend(self, values: Sequence[Any], lines: Sequence[int]) -> None:
        """Take these values."""
        if self._missing_is_zero and (None in values or "" in values):
            self.missing += values.count(None) + values.count("")
            values = [0 if value is None or value == "" else value for value in values]
        numbers = _plain_counts(values)
        self.values.extend(_one_by_one(self._name, token_count, values, lines) if numbers is None else numbers)


class Times:
    """Arrival times as numbers; `plain` tells whether their unit is still open, dates are in seconds."""

    def __init__(self, name: str) -> None:
        self.values = array("d")
        self.plain: bool | None = None
        self._name = name

    def extend(self, values: Sequence[Any], lines: Sequence[int]) -> None:
        """Take these values."""
        try:
            numbers = array("d", map(float, values)) if self.plain and bool not in set(map(type, values)) else None
        except (ValueError, TypeError, OverflowError):
            numbers = None
        if numbers is None or not all(map(isfinite, numbers)):
            numbers = array("d", _one_by_one(self._name, self._moment, values, lines))
        self.values.extend(numbers)

    def _moment(self, value: Any) -> float:
        moment, plain = seconds(value)
        if self.plain is None:
            self.plain = plain
        elif plain is not self.plain:
            raise FieldError(f"is {value!r:.40}; the times before it are {'dates' if plain else 'numbers'}")
        if not isfinite(moment):
            raise FieldError(f"is {value!r:.40}, not an arrival time")
        return moment


class Words:
    """Texts of which few are different, in lower case, 4 bytes each."""

    def __init__(self, name: str) -> None:
        self.codes = array("i")
        self.known: dict[str, int] = {}
        self._name = name

    def extend(self, values: Sequence[Any], lines: Sequence[int]) -> None:
        """Take these values."""
        self.codes.extend(_one_by_one(self._name, self._code, values, lines))

    def _code(self, value: Any) -> int:
        text = "" if value is None else str(value).strip().lower()
        code = self.known.get(text)
        if code is not None:
            return code
        if len(self.known) == _MOST_NAMES:
            raise FieldError(f"has more than {_MOST_NAMES} different values, such as {text[:40]!r}")
        return self.known.setdefault(text, len(self.known))


def _plain_counts(values: Sequence[Any]) -> array[int] | None:
    """All values as numbers where they are whole numbers in bounds, or texts of such; None where one is not."""
    if frozenset(map(type, values)) not in _PLAIN:
        return None
    try:
        numbers = array("i", map(int, values))
    except (ValueError, OverflowError):
        return None
    return numbers if min(numbers) >= 0 and max(numbers) <= MOST_TOKENS else None


def _one_by_one(name: str, read: Callable[[Any], Any], values: Sequence[Any], lines: Sequence[int]) -> list[Any]:
    found = []
    for value, line in zip(values, lines, strict=True):
        try:
            found.append(read(value))
        except FieldError as error:
            raise LogError(f"column {name!r} {error}", line=line) from None
    return found
