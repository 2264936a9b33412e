"""The end of the process comes within its grace period, whoever does not want to stop."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

# The Deployment grants 30 s. What takes longest in good order is the last answer of a slow API server (15 s).
END_SECONDS: Final = 22.0
EXIT_FORCED: Final = 3


class Ending:
    """From `begin` on the process has so many seconds; then it is ended by a thread, whatever the event loop does."""

    def __init__(self, seconds: float = END_SECONDS, leave: Callable[[int], object] = os._exit) -> None:
        self._seconds = seconds
        self._leave = leave
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start the clock, once."""
        if self._timer is None:
            self._timer = threading.Timer(self._seconds, self._force)
            self._timer.daemon = True
            self._timer.start()

    def over(self) -> None:
        """All has stopped in good order."""
        if self._timer is not None:
            self._timer.cancel()

    def _force(self) -> None:
        log.error("not stopped in good order within %g s; leaving as it is", self._seconds)
        self._leave(EXIT_FORCED)
