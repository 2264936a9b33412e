"""The last moment before a request leaves: may it still go?"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
from typing_extensions import override

# Raises when the request that is being made must not go out any more. Set around each request.
before_sending: Final[ContextVar[Callable[[], None]]] = ContextVar("before_sending", default=lambda: None)


class CheckedRequest(aiohttp.ClientRequest):
    """A request that asks `before_sending` once it has a connection, and again before its body.

    Headers wait for the body in the same buffer. In between the process may be frozen for any time: what a writer
    was allowed to do before it waited for a connection says nothing about now.
    """

    @override
    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        before_sending.get()()
        return await super().send(conn)

    @override
    async def write_bytes(self, writer: Any, conn: Any, *args: Any, **kwargs: Any) -> None:
        try:
            before_sending.get()()
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer gets it
            conn.protocol.set_exception(error)
            conn.close()
            return
        await super().write_bytes(writer, conn, *args, **kwargs)
