"""/healthz: should the kubelet restart us? /readyz: does the operator do its work?"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

log = logging.getLogger(__name__)


class PortTaken(Exception):  # noqa: N818 - what is the matter with it
    """The health endpoints cannot listen where they should; the message is one line."""


@dataclass(frozen=True, slots=True)
class State:
    """An answer and why."""

    good: bool
    text: str


class Health:
    """The two endpoints. They run in the event loop they report on, so a blocked loop fails them too."""

    def __init__(self, *, live: Callable[[], State], ready: Callable[[], State]) -> None:
        self._live = live
        self._ready = ready
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            PortTaken: there is no listening at that address.
        """

        async def healthz(_request: web.Request) -> web.Response:
            return _answer(self._live())

        async def readyz(_request: web.Request) -> web.Response:
            return _answer(self._ready())

        app = web.Application()
        app.router.add_get("/healthz", healthz)
        app.router.add_get("/readyz", readyz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise PortTaken(
                f"the health endpoints cannot listen at {host}:{port}: {why}; --health-port names another port"
            ) from None
        self.port = self._runner.addresses[0][1]
        log.info("health endpoints at %s:%d", host, self.port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _answer(state: State) -> web.Response:
    return web.Response(status=200 if state.good else 503, text=state.text + "\n")
