"""How a request reaches the API server: a slot, a timeout, a few new tries, and our own errors.

This is the one place from which writes leave, and so the place where leadership is asked for: before every send and
every new try, after all waiting for a slot, a token or a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient

from reasoningpool.adapters.errors import KubeError, NotLeading, Transient, Unreachable, classify
from reasoningpool.adapters.gate import Gate, Priority
from reasoningpool.adapters.login import Relogin
from reasoningpool.adapters.sending import before_sending
from reasoningpool.adapters.server_clock import ServerClock
from reasoningpool.objects import Manifest

REQUEST_TIMEOUT_SECONDS: Final = 15.0
# The API server is the bottleneck from about here on; more slots only lengthen its queues.
DEFAULT_CONCURRENCY: Final = 16
# Overload (429) is worth waiting out here rather than failing a whole cycle, but not for ever.
_MAX_RETRY_AFTER_SECONDS: Final = 10.0
_MAX_OVERLOAD_RETRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    `priority` None: it waits for no slot. `resend`: it may go out again when its connection breaks. `for_lease`: it
    is about leadership itself. An answer longer than `max_bytes` is given up.
    """

    method: str
    path: str
    body: Mapping[str, Any] | str | None = None
    query: Sequence[tuple[str, str]] = ()
    _: KW_ONLY
    verb: tuple[str, str]  # verb and kind, as `Transport.requests` counts them
    content_type: str = "application/json"
    accept: str = "application/json"
    priority: Priority | None = Priority.NORMAL
    resend: bool = True
    for_lease: bool = False
    max_bytes: int | None = None

    @property
    def needs_leadership(self) -> bool:
        """Whether only the leader may send it."""
        return self.method != "GET" and not self.for_lease


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def is_json(self) -> bool:
        return "json" in self.headers.get("Content-Type", "")


class Transport:
    """Sends requests, so many at a time. Raises `KubeError` subclasses, NotLeading and CancelledError only.

    `may_write` is asked in the moment in which a request that changes something leaves.
    """

    def __init__(self, api: ApiClient, relogin: Relogin | None, *, concurrency: int, timeout: float) -> None:
        self._api = api
        self._relogin = relogin
        self._gate = Gate(concurrency)
        self._timeout = timeout
        self._client_timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 5.0))
        self.may_write: Callable[[], bool] = lambda: True
        self.clock = ServerClock()
        # (verb, kind) -> number of requests sent, for benchmarks and metrics.
        self.requests: Counter[tuple[str, str]] = Counter()

    @property
    def host(self) -> str:
        """The API server's address, for messages."""
        return str(self._api.configuration.host)

    async def relogin(self) -> None:
        """Read the credentials again."""
        if self._relogin is not None:
            await self._relogin()

    async def call(self, request: Request) -> Manifest:
        """The object that the API server answers."""
        answer = await self._exchange(request)
        if not answer.is_json:
            message = f"the API server answered {request.method} {request.path} with something that is not JSON"
            raise Transient(message, status=200)
        manifest: Manifest = json.loads(answer.raw)
        return manifest

    async def text(self, request: Request) -> str:
        """The text that the API server answers."""
        answer = await self._exchange(request)
        return answer.raw.decode("utf-8", errors="replace")

    async def _exchange(self, request: Request) -> _Answer:
        """Send until there is an answer worth giving back: one new login, one new connection, a few waits."""
        renewed = reconnected = False
        overloads = 0
        while True:
            try:
                answer = await self._send(request)
            except TimeoutError as late:
                message = f"{self.host}: no answer within {self._timeout:g} s"
                raise Unreachable(message) from late
            except aiohttp.ClientError as broken:
                # A connection that idled may be closed already; every request of ours can be sent twice.
                if request.resend and not reconnected:
                    reconnected = True
                    continue
                message = f"{self.host}: {type(broken).__name__}: {broken}"
                raise Unreachable(message) from broken
            if answer.status < 300:
                return answer
            error = _error(answer)
            if answer.status == 401 and not renewed:
                renewed = True
                await self.relogin()
                continue
            wait = error.retry_after
            if answer.status == 429 and wait is not None and wait <= _MAX_RETRY_AFTER_SECONDS:
                overloads += 1
                if overloads <= _MAX_OVERLOAD_RETRIES:
                    await asyncio.sleep(wait)
                    continue
            raise error

    async def _send(self, request: Request) -> _Answer:
        priority = request.priority
        async with self._gate.slot(priority) if priority is not None else contextlib.nullcontext():
            parameters = await self._api.param_serialize(
                request.method,
                request.path,
                query_params=list(request.query),
                body=request.body,
                header_params={"Content-Type": request.content_type, "Accept": request.accept},
                auth_settings=["BearerToken"],
            )
            self._check(request)
            self.requests[request.verb] += 1
            before_sending.set(lambda: self._check(request))
            async with asyncio.timeout(self._timeout):
                response = await self._api.call_api(*parameters, _request_timeout=self._client_timeout)
                self.clock.note(response.headers.get("Date"))
                raw = await _body(response, request.max_bytes)
            return _Answer(response.status, response.headers, raw)

    def _check(self, request: Request) -> None:
        if request.needs_leadership and not self.may_write():
            raise NotLeading


async def _body(response: Any, most: int | None) -> bytes:
    if most is None:
        whole: bytes = await response.read()
        return whole
    found = bytearray()
    async for chunk in response.response.content.iter_any():
        found += chunk
        if len(found) > most:
            response.response.close()
            raise Transient(f"the answer is longer than {most:,} bytes", status=response.status)
    return bytes(found)


def _error(answer: _Answer) -> KubeError:
    retry_after: float | None = None
    with contextlib.suppress(ValueError):  # absent, or a date, which API servers do not send
        retry_after = float(answer.headers.get("Retry-After", ""))
    body: Mapping[str, Any] | None = None
    if answer.is_json:
        try:
            loaded = json.loads(answer.raw)
            body = loaded if isinstance(loaded, dict) else None
        except ValueError:
            body = None
    return classify(answer.status, body, answer.raw[:4096].decode("utf-8", errors="replace"), retry_after)
