"""Log lines: JSON for machines, text for people; the pool's name in both, secrets in neither."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from typing_extensions import override

from reasoningpool.objects import redacted

_EXTRAS: Final = ("pool_namespace", "pool")


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        for name in _EXTRAS:
            if (value := getattr(record, name, None)) is not None:
                entry[name] = value
        if record.exc_info:
            entry["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, pool, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(where)s%(message)s")

    @override
    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "pool", None)
        record.where = f"[{getattr(record, 'pool_namespace', '')}/{name}] " if name else ""
        return redacted(super().format(record))


def configure(*, style: str, level: str) -> None:
    """Send everything to stderr in one style."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # One line per watch event otherwise.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    # Warns at every start that CRDs and namespaces are not scanned, which is what we ask for.
    logging.getLogger("kopf._core.reactor.observation").setLevel(logging.ERROR)
