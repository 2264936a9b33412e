"""The one class that talks to the Kubernetes API: plain dicts in and out, our own errors, always a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from kubernetes.aio.client import ApiClient

from reasoningpool.adapters.errors import KubeError, Transient, Unreachable, classify
from reasoningpool.adapters.gate import Gate, Priority
from reasoningpool.adapters.login import Relogin
from reasoningpool.api import names
from reasoningpool.planning.types import Manifest, ObjectKey

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS: Final = 15.0
# The API server is the bottleneck from about here on; more slots only lengthen its queues.
DEFAULT_CONCURRENCY: Final = 16
# Overload (429) is worth waiting out here rather than failing a whole cycle, but not for ever.
_MAX_RETRY_AFTER_SECONDS: Final = 10.0
_MAX_OVERLOAD_RETRIES: Final = 3
_PAGE: Final = 100

# Server-side apply does not ask for discovery when the kinds are known.
_PLURALS: Final = {
    names.KIND: names.PLURAL,
    "Endpoints": "endpoints",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Ingress": "ingresses",
}
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `version` is the resourceVersion the whole list is consistent with."""

    items: list[Manifest]
    version: str


class Kube:
    """Requests on plain dicts. Raises `KubeError` subclasses only (and CancelledError)."""

    def __init__(
        self,
        api: ApiClient,
        relogin: Relogin | None = None,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self._api = api
        self._relogin = relogin
        self._gate = Gate(concurrency)
        self._timeout = timeout
        self._client_timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 5.0))
        # (verb, plural) -> number of requests sent, for benchmarks and metrics.
        self.requests: Counter[tuple[str, str]] = Counter()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    @property
    def host(self) -> str:
        """The API server's address, for messages."""
        return str(self._api.configuration.host)

    # -- objects ---------------------------------------------------------------------------------------------------

    async def get(self, key: ObjectKey, *, priority: Priority = Priority.URGENT) -> Manifest:
        """Read one object."""
        return await self._call("GET", object_path(key), verb=("get", key.kind), priority=priority)

    async def pages(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncIterator[Page]:
        """List a kind page by page; items carry apiVersion and kind, which the API leaves out of lists."""
        token = ""
        while True:
            query = [("limit", str(_PAGE))]
            query += [("labelSelector", label_selector)] if label_selector else []
            query += [("continue", token)] if token else []
            answer = await self._call(
                "GET",
                collection_path(api_version, kind, namespace),
                query=query,
                accept=_METADATA_LIST if metadata_only else "application/json",
                verb=("list", kind),
            )
            items: list[Manifest] = answer.get("items") or []
            for item in items:
                item["apiVersion"], item["kind"] = api_version, kind
            meta = answer.get("metadata") or {}
            yield Page(items, str(meta.get("resourceVersion") or ""))
            token = meta.get("continue") or ""
            if not token:
                return

    async def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        manager: str,
        force: bool = True,
        priority: Priority = Priority.NORMAL,
    ) -> Manifest:
        """Server-side apply; answers the object as it is now."""
        key = ObjectKey.of(manifest)
        verb = ("apply", key.kind)
        return await self._apply(object_path(key), manifest, verb, manager=manager, force=force, priority=priority)

    async def apply_status(
        self, manifest: Mapping[str, Any], *, manager: str, priority: Priority = Priority.NORMAL
    ) -> Manifest:
        """Server-side apply of the status alone; never creates, and never touches an object with another uid."""
        key = ObjectKey.of(manifest)
        path = object_path(key) + "/status"
        verb = ("apply-status", key.kind)
        return await self._apply(path, manifest, verb, manager=manager, force=True, priority=priority)

    async def delete(
        self, key: ObjectKey, *, uid: str, propagation: str = "Background", priority: Priority = Priority.NORMAL
    ) -> None:
        """Delete this very object; NotFound when it is gone, Conflict when another one has its name."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": {"uid": uid},
        }
        await self._call("DELETE", object_path(key), body, verb=("delete", key.kind), priority=priority)

    async def create(
        self, manifest: Mapping[str, Any], *, manager: str, priority: Priority = Priority.NORMAL
    ) -> Manifest:
        """Plain create, for objects whose name must not exist yet (events, leases)."""
        key = ObjectKey.of(manifest)
        return await self._call(
            "POST",
            collection_path(key.api_version, key.kind, key.namespace),
            manifest,
            [("fieldManager", manager)],
            verb=("create", key.kind),
            priority=priority,
        )

    async def merge(
        self, key: ObjectKey, patch: Mapping[str, Any], *, manager: str, priority: Priority = Priority.NORMAL
    ) -> Manifest:
        """JSON merge patch."""
        query = [("fieldManager", manager)]
        kind = "application/merge-patch+json"
        path = object_path(key)
        return await self._call(
            "PATCH", path, patch, query, content_type=kind, verb=("merge", key.kind), priority=priority
        )

    async def warnings_about(self, namespace: str, uid: str, reason: str, *, limit: int) -> list[Manifest]:
        """Warning events with this reason about one object, at most `limit` of them in one request."""
        query = [
            ("fieldSelector", f"involvedObject.uid={uid},type=Warning,reason={reason}"),
            ("limit", str(limit)),
        ]
        path = collection_path("v1", "Event", namespace)
        answer = await self._call("GET", path, query=query, verb=("list", "Event"), priority=Priority.BACKGROUND)
        found: list[Manifest] = answer.get("items") or []
        return found

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, lines: int, limit_bytes: int
    ) -> str:
        """The end of a container's log."""
        path = object_path(ObjectKey("v1", "Pod", namespace, pod)) + "/log"
        query = [
            ("container", container),
            ("previous", str(previous).lower()),
            ("tailLines", str(lines)),
            ("limitBytes", str(limit_bytes)),
        ]
        return await self._text(path, query, ("log", "Pod"))

    # -- the Lease: never behind other requests, and never sent twice, since a second PUT would meet the first ------

    async def get_lease(self, key: ObjectKey) -> Manifest:
        """Read the Lease."""
        return await self._call("GET", object_path(key), verb=("get", key.kind), priority=None, resend=False)

    async def create_lease(self, lease: Mapping[str, Any]) -> Manifest:
        """Create the Lease; Conflict when somebody was faster."""
        key = ObjectKey.of(lease)
        path = collection_path(key.api_version, key.kind, key.namespace)
        query = [("fieldManager", names.FIELD_MANAGER)]
        return await self._call("POST", path, lease, query, verb=("create", key.kind), priority=None, resend=False)

    async def put_lease(self, lease: Mapping[str, Any]) -> Manifest:
        """Write the Lease with the resourceVersion that was read; Conflict when somebody was faster."""
        key = ObjectKey.of(lease)
        query = [("fieldManager", names.FIELD_MANAGER)]
        return await self._call(
            "PUT", object_path(key), lease, query, verb=("put", key.kind), priority=None, resend=False
        )

    # -- the watcher's connection ----------------------------------------------------------------------------------

    def watch_session(self, response_class: type[aiohttp.ClientResponse]) -> aiohttp.ClientSession:
        """A session for a watcher (kopf): same certificates, and always the newest token."""
        configuration = self._api.configuration

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            for auth in (await configuration.auth_settings()).values():
                if auth["in"] == "header" and auth["value"]:
                    request.headers[auth["key"].title()] = auth["value"]
            return await handler(request)

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl()),
            middlewares=(authorize,),
            response_class=response_class,
            proxy=configuration.proxy or None,
            trust_env=False,
        )

    def _ssl(self) -> ssl.SSLContext | bool:
        if not self.host.startswith("https:"):
            return False
        context: ssl.SSLContext = self._api.rest_client.ssl_context
        return context

    async def relogin(self) -> None:
        """Read the credentials again."""
        if self._relogin is not None:
            await self._relogin()

    # -- transport -------------------------------------------------------------------------------------------------

    async def _apply(
        self,
        path: str,
        manifest: Mapping[str, Any],
        verb: tuple[str, str],
        *,
        manager: str,
        force: bool,
        priority: Priority,
    ) -> Manifest:
        query = [("fieldManager", manager), ("force", str(force).lower())]
        # Written out here: the client would escape what is beyond the BMP as two surrogates, which the server's
        # YAML reader refuses. With a parameter in the content type it sends text as it is.
        kind = "application/apply-patch+yaml; charset=utf-8"
        text = json.dumps(manifest, ensure_ascii=False)
        return await self._call("PATCH", path, text, query, content_type=kind, verb=verb, priority=priority)

    async def _text(self, path: str, query: Iterable[tuple[str, str]], verb: tuple[str, str]) -> str:
        _, raw = await self._exchange(
            lambda: self._send(
                "GET",
                path,
                None,
                query,
                content_type="application/json",
                accept="*/*",
                priority=Priority.BACKGROUND,
                verb=verb,
            ),
            resend=True,
        )
        return raw.decode("utf-8", errors="replace")

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | str | None = None,
        query: Iterable[tuple[str, str]] = (),
        *,
        verb: tuple[str, str],
        content_type: str = "application/json",
        accept: str = "application/json",
        priority: Priority | None = Priority.NORMAL,
        resend: bool = True,
    ) -> Manifest:
        is_json, raw = await self._exchange(
            lambda: self._send(
                method, path, body, query, content_type=content_type, accept=accept, priority=priority, verb=verb
            ),
            resend=resend,
        )
        if not is_json:
            message = f"the API server answered {method} {path} with something that is not JSON"
            raise Transient(message, status=200)
        answer: Manifest = json.loads(raw)
        return answer

    async def _exchange(
        self, send: Callable[[], Awaitable[tuple[int, Mapping[str, str], bytes]]], *, resend: bool
    ) -> tuple[bool, bytes]:
        """Send until there is an answer worth giving back: one new login, one new connection, a few waits."""
        renewed = reconnected = False
        overloads = 0
        while True:
            try:
                status, headers, raw = await send()
            except TimeoutError as late:
                message = f"{self.host}: no answer within {self._timeout:g} s"
                raise Unreachable(message) from late
            except aiohttp.ClientError as broken:
                # A connection that idled may be closed already; every request of ours can be sent twice.
                if resend and not reconnected:
                    reconnected = True
                    continue
                message = f"{self.host}: {type(broken).__name__}: {broken}"
                raise Unreachable(message) from broken
            is_json = "json" in headers.get("Content-Type", "")
            if status < 300:
                return is_json, raw
            error = _error(status, headers, raw, is_json=is_json)
            if status == 401 and not renewed:
                renewed = True
                await self.relogin()
                continue
            wait = error.retry_after
            if status == 429 and wait is not None and wait <= _MAX_RETRY_AFTER_SECONDS:
                overloads += 1
                if overloads <= _MAX_OVERLOAD_RETRIES:
                    await asyncio.sleep(wait)
                    continue
            raise error

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | str | None,
        query: Iterable[tuple[str, str]],
        *,
        content_type: str,
        accept: str,
        priority: Priority | None,
        verb: tuple[str, str],
    ) -> tuple[int, Mapping[str, str], bytes]:
        async with self._gate.slot(priority) if priority is not None else contextlib.nullcontext():
            request = await self._api.param_serialize(
                method,
                path,
                query_params=list(query),
                body=body,
                header_params={"Content-Type": content_type, "Accept": accept},
                auth_settings=["BearerToken"],
            )
            self.requests[verb] += 1
            async with asyncio.timeout(self._timeout):
                response = await self._api.call_api(*request, _request_timeout=self._client_timeout)
                raw: bytes = await response.read()  # type: ignore[no-untyped-call]
            return response.status, response.headers, raw


def _error(status: int, headers: Mapping[str, str], raw: bytes, *, is_json: bool) -> KubeError:
    retry_after: float | None = None
    with contextlib.suppress(ValueError):  # absent, or a date, which API servers do not send
        retry_after = float(headers.get("Retry-After", ""))
    body: Mapping[str, Any] | None = None
    if is_json:
        try:
            loaded = json.loads(raw)
            body = loaded if isinstance(loaded, dict) else None
        except ValueError:
            body = None
    return classify(status, body, raw[:4096].decode("utf-8", errors="replace"), retry_after)


def plural(kind: str) -> str:
    """The resource name of a kind."""
    return _PLURALS.get(kind) or kind.lower() + "s"


def collection_path(api_version: str, kind: str, namespace: str | None) -> str:
    """URL path of a kind, in one namespace or in all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{scope}/{plural(kind)}"


def object_path(key: ObjectKey) -> str:
    """URL path of one object."""
    return f"{collection_path(key.api_version, key.kind, key.namespace)}/{quote(key.name, safe='')}"
