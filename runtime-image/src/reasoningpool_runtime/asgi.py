"""ASGI by hand: reading a body, giving it back, answering."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyTooLargeError(Exception):
    """The body is longer than allowed; what was read of it is dropped."""


class ClientDisconnectedError(Exception):
    """The client went away."""


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers by lower-case name; the first of several with one name."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


async def read_body(receive: Receive, most_bytes: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLargeError: it is longer than `most_bytes`; the rest is left unread.
        ClientDisconnectedError: the client went away first.
    """
    chunks: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunk = message.get("body", b"")
        length += len(chunk)
        if length > most_bytes:
            raise BodyTooLargeError
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def replaying(body: bytes, receive: Receive) -> Receive:
    """A receive that gives `body` first and then what the connection gives: the disconnect."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def with_body_length(scope: Scope, length: int) -> Scope:
    """The scope for a body that was changed."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


async def until_disconnect(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_disconnected(awaitable: Awaitable[Any], receive: Receive) -> Any:
    """The result of `awaitable`, which is cancelled when the client goes away first.

    Raises:
        ClientDisconnectedError: the client went away first.
    """
    tasks = [asyncio.ensure_future(awaitable)]
    try:
        await asyncio.sleep(0)  # most have nothing to wait for
        if not tasks[0].done():
            tasks.append(asyncio.ensure_future(until_disconnect(receive)))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise ClientDisconnectedError
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answer(
    send: Send, status: int, body: bytes, headers: dict[str, str] | None = None, content_type: str = "application/json"
) -> None:
    """A whole response."""
    fields = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
    raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
