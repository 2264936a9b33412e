"""The configuration file, read again when it changes."""

from __future__ import annotations

import logging
from pathlib import Path

from reasoningpool_runtime import contract
from reasoningpool_runtime.contract import ConfigError, RuntimeConfig

logger = logging.getLogger("reasoningpool.runtime")

Stamp = tuple[int, int, int]


class ConfigFile:
    """Holds the last good configuration; None until there is one.

    A ConfigMap's volume changes by swapping a symlink, so the file's inode tells; a file written in place tells by its
    time and size.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._complained = ""
        self.config: RuntimeConfig | None = None
        self.broken = False
        self.loads = 0

    def refresh(self) -> bool:
        """Read the file if it changed. True when the configuration is another one now.

        Whatever is wrong with a new file is logged once, and the last good configuration stays.
        """
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            config, unknown = contract.loads(self._path.read_bytes())
        except (OSError, ConfigError) as error:
            self._complain(str(error))
            return False
        self.broken, self._complained = False, ""
        if unknown:
            logger.warning("%s: unknown fields are left alone: %s", self._path, ", ".join(unknown))
        if config == self.config:
            return False
        self.config = config
        self.loads += 1
        logger.info("configuration of tier %s read from %s", config.tier, self._path)
        return True

    def _complain(self, text: str) -> None:
        self.broken = True
        if text != self._complained:
            self._complained = text
            kept = "the last good one stays in force" if self.config else "requests pass through without budgets"
            logger.error("%s: configuration not usable, %s: %s", self._path, kept, text)
