"""What time it is for the API server, whose times objects carry; our own wall clock may be set at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime


def boot_seconds() -> float:
    """Seconds since some moment, which no setting of a clock changes; where it can be had, sleep counts too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ServerClock:
    """The time of the last answer's Date header and what has passed since; until one comes, our own wall clock's."""

    def __init__(
        self,
        *,
        elapsed: Callable[[], float] = boot_seconds,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._elapsed = elapsed
        self._wall = wall
        self._told: tuple[datetime, float] | None = None
        self._header = ""

    def note(self, date: str | None) -> None:
        """An answer has come just now; `date` is its Date header."""
        if not date or date == self._header:
            return
        try:
            told = parsedate_to_datetime(date)
        except ValueError:
            return
        self._header = date
        self._told = told if told.tzinfo else told.replace(tzinfo=UTC), self._elapsed()

    def now(self) -> datetime:
        """The time, to a second or so."""
        if self._told is None:
            return self._wall()
        told, at = self._told
        return told.astimezone(UTC) + timedelta(seconds=self._elapsed() - at)
