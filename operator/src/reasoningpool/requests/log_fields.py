"""Single values of a request log: token counts and times, or what is wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from reasoningpool.objects import shorten
from reasoningpool.requests.log import MOST_TOKENS

_MOST_SHOWN: Final = 40


class TimeUnit(StrEnum):
    """Unit of numeric arrival times."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


PER_SECOND: Final = {
    TimeUnit.SECONDS: 1.0,
    TimeUnit.MILLISECONDS: 1e3,
    TimeUnit.MICROSECONDS: 1e6,
    TimeUnit.NANOSECONDS: 1e9,
}
# Numbers of this size are times since 1970 in the unit: 1973 and later.
_EPOCH_FROM: Final = (
    (1e17, TimeUnit.NANOSECONDS),
    (1e14, TimeUnit.MICROSECONDS),
    (1e11, TimeUnit.MILLISECONDS),
    (1e8, TimeUnit.SECONDS),
)


class FieldError(ValueError):
    """A value that is none; the message continues "column 'x' ..."."""


def token_count(value: Any) -> int:
    """A whole number of tokens from 0 to `MOST_TOKENS`; whole floats and texts of digits are taken too."""
    if isinstance(value, str):
        number = _number(value, "a whole number of tokens")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = value
    elif value is None:
        raise FieldError("is empty")
    else:
        raise FieldError(f"is {_shown(value)}, not a whole number of tokens")
    if not isfinite(number) or number != int(number):
        raise FieldError(f"is {_shown(value)}, not a whole number of tokens")
    if number < 0:
        raise FieldError(f"is {_shown(value)}: a number of tokens is not negative")
    if number > MOST_TOKENS:
        raise FieldError(f"is {_shown(value)}: more than {MOST_TOKENS:,} tokens are more than any model's context")
    return int(number)


def seconds(value: Any) -> tuple[float, bool]:
    """A time as a number, and whether it is a plain number whose unit is still open (texts are dates, in seconds)."""
    if isinstance(value, str) and value.strip():
        try:
            return float(value), True
        except ValueError:
            return _date(value), False
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
        return float(value), True
    raise FieldError(
        "is empty" if value is None or isinstance(value, str) else f"is {_shown(value)}, not an arrival time"
    )


def _date(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise FieldError(f"is {_shown(text)}, neither a number nor a date such as 2026-01-31 12:00:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def guessed_unit(largest: float) -> TimeUnit | None:
    """The unit of times since 1970 by their size, None for times from a start of their own."""
    return next((unit for low, unit in _EPOCH_FROM if largest >= low), None)


def _number(text: str, what: str) -> float:
    plain = text.strip()
    if not plain:
        raise FieldError("is empty")
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        return float(plain)
    except ValueError:
        raise FieldError(f"is {_shown(text)}, not {what}") from None


def _shown(value: Any) -> str:
    return shorten(repr(value), _MOST_SHOWN)
