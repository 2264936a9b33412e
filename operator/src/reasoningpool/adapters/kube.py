"""The one class that talks to the Kubernetes API: plain dicts in and out, our own errors, always a timeout."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiohttp
from kubernetes.aio.client import ApiClient

from reasoningpool.adapters.errors import Conflict, NotFound, NotInstalled, Permanent
from reasoningpool.adapters.gate import Priority
from reasoningpool.adapters.login import Relogin
from reasoningpool.adapters.paths import collection_path, group_path, object_path
from reasoningpool.adapters.transport import DEFAULT_CONCURRENCY, REQUEST_TIMEOUT_SECONDS, Request, Transport
from reasoningpool.api import names
from reasoningpool.objects import KINDS, Kind, Kinds, Manifest, ObjectKey
from reasoningpool.objects.kinds import EVENT, POD

_PAGE: Final = 100
_MAX_EVENTS_BYTES: Final = 2 << 20  # whoever may create events may write long ones
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `version` is the resourceVersion the whole list is consistent with."""

    items: list[Manifest]
    version: str


class Kube:
    """Requests on plain dicts. Raises `KubeError` subclasses, NotLeading and CancelledError only."""

    def __init__(
        self,
        api: ApiClient,
        relogin: Relogin | None = None,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        kinds: Kinds = KINDS,
    ) -> None:
        self._api = api
        self._kinds = kinds
        self._transport = Transport(api, relogin, concurrency=concurrency, timeout=timeout)

    @property
    def requests(self) -> Counter[tuple[str, str]]:
        """Requests sent so far, by verb and kind."""
        return self._transport.requests

    def write_only_if(self, may_write: Callable[[], bool]) -> None:
        """Ask this before anything but the Lease is written; NotLeading is raised when it is not so."""
        self._transport.may_write = may_write

    def now(self) -> datetime:
        """The API server's time, by which the times in objects are judged."""
        return self._transport.clock.now()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    @property
    def host(self) -> str:
        """The API server's address, for messages."""
        return self._transport.host

    # -- objects ---------------------------------------------------------------------------------------------------

    def _path(self, key: ObjectKey) -> str:
        return object_path(key, self._kinds)

    async def get(self, key: ObjectKey, *, priority: Priority = Priority.URGENT) -> Manifest:
        """Read one object."""
        return await self._transport.call(Request("GET", self._path(key), verb=("get", key.kind), priority=priority))

    async def pages(
        self,
        kind: Kind,
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
            answer = await self._transport.call(
                Request(
                    "GET",
                    collection_path(kind, namespace),
                    query=query,
                    accept=_METADATA_LIST if metadata_only else "application/json",
                    verb=("list", kind.kind),
                )
            )
            items: list[Manifest] = answer.get("items") or []
            for item in items:
                item["apiVersion"], item["kind"] = kind.api_version, kind.kind
            meta = answer.get("metadata") or {}
            yield Page(items, str(meta.get("resourceVersion") or ""))
            token = meta.get("continue") or ""
            if not token:
                return

    async def resources(self, api_version: str) -> frozenset[str]:
        """The resources (plural names) that the cluster serves in one version of an API group; empty if it has none."""
        request = Request("GET", group_path(api_version), verb=("discover", api_version), priority=Priority.BACKGROUND)
        try:
            answer = await self._transport.call(request)
        except (NotInstalled, NotFound):
            return frozenset()
        return frozenset(str(resource["name"]) for resource in answer.get("resources") or ())

    async def try_watch(self, kind: Kind, *, namespace: str | None, label_selector: str) -> None:
        """Open a watch and close it after a second; raises what a watcher would meet."""
        version = ""
        async for page in self.pages(kind, namespace=namespace, label_selector=label_selector, metadata_only=True):
            version = page.version
            break
        # From this version on: without one the watch would begin with every object.
        query = [("watch", "true"), ("timeoutSeconds", "1"), ("labelSelector", label_selector)]
        query += [("resourceVersion", version)]
        path = collection_path(kind, namespace)
        await self._transport.text(
            Request("GET", path, query=query, verb=("watch", kind.kind), accept="*/*", priority=Priority.BACKGROUND)
        )

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
        return await self._apply(self._path(key), manifest, verb, manager=manager, force=force, priority=priority)

    async def apply_status(
        self, manifest: Mapping[str, Any], *, manager: str, priority: Priority = Priority.NORMAL
    ) -> Manifest:
        """Server-side apply of the status alone; never creates, and never touches an object with another uid."""
        key = ObjectKey.of(manifest)
        path = self._path(key) + "/status"
        verb = ("apply-status", key.kind)
        return await self._apply(path, manifest, verb, manager=manager, force=True, priority=priority)

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
        return await self._transport.call(
            Request("PATCH", path, text, query, content_type=kind, verb=verb, priority=priority)
        )

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
        await self._transport.call(
            Request("DELETE", self._path(key), body, verb=("delete", key.kind), priority=priority)
        )

    async def create(
        self, manifest: Mapping[str, Any], *, manager: str, priority: Priority = Priority.NORMAL
    ) -> Manifest:
        """Plain create, for objects whose name must not exist yet (events, leases)."""
        key = ObjectKey.of(manifest)
        return await self._transport.call(
            Request(
                "POST",
                collection_path(self._kinds.of(key), key.namespace),
                manifest,
                [("fieldManager", manager)],
                verb=("create", key.kind),
                priority=priority,
            )
        )

    async def merge(
        self, key: ObjectKey, patch: Mapping[str, Any], *, manager: str, priority: Priority = Priority.NORMAL
    ) -> Manifest:
        """JSON merge patch."""
        query = [("fieldManager", manager)]
        kind = "application/merge-patch+json"
        path = self._path(key)
        return await self._transport.call(
            Request("PATCH", path, patch, query, content_type=kind, verb=("merge", key.kind), priority=priority)
        )

    async def label(
        self,
        key: ObjectKey,
        *,
        uid: str,
        labels: Mapping[str, str | None],
        manager: str,
        priority: Priority = Priority.NORMAL,
    ) -> Manifest:
        """Set labels of this very object, remove those that are None; Conflict when another one has its name."""
        patch = {"metadata": {"uid": uid, "labels": dict(labels)}}
        try:
            return await self.merge(key, patch, manager=manager, priority=priority)
        except Permanent as error:
            # A merge patch knows no precondition: of another object it would change the uid, which is refused.
            if error.immutable and any(cause.field == "metadata.uid" for cause in error.causes):
                raise Conflict(error.message, status=error.status, reason=error.reason) from error
            raise

    async def warnings_about(self, namespace: str, uid: str, reason: str, *, limit: int) -> list[Manifest]:
        """Warning events with this reason about one object, at most `limit` of them in one request."""
        query = [
            ("fieldSelector", f"involvedObject.uid={uid},type=Warning,reason={reason}"),
            ("limit", str(limit)),
        ]
        path = collection_path(EVENT, namespace)
        answer = await self._transport.call(
            Request(
                "GET",
                path,
                query=query,
                verb=("list", "Event"),
                priority=Priority.BACKGROUND,
                max_bytes=_MAX_EVENTS_BYTES,
            )
        )
        found: list[Manifest] = answer.get("items") or []
        return found

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, previous: bool, lines: int, limit_bytes: int
    ) -> str:
        """The end of a container's log."""
        path = self._path(ObjectKey(POD.api_version, POD.kind, namespace, pod)) + "/log"
        query = [
            ("container", container),
            ("previous", str(previous).lower()),
            ("tailLines", str(lines)),
            ("limitBytes", str(limit_bytes)),
        ]
        return await self._transport.text(
            Request("GET", path, query=query, verb=("log", "Pod"), accept="*/*", priority=Priority.BACKGROUND)
        )

    # -- the Lease: never behind other requests, and never sent twice, since a second PUT would meet the first ------

    async def get_lease(self, key: ObjectKey) -> Manifest:
        """Read the Lease."""
        return await self._transport.call(
            Request("GET", self._path(key), verb=("get", key.kind), priority=None, resend=False, for_lease=True)
        )

    async def create_lease(self, lease: Mapping[str, Any]) -> Manifest:
        """Create the Lease; Conflict when somebody was faster."""
        key = ObjectKey.of(lease)
        path = collection_path(self._kinds.of(key), key.namespace)
        query = [("fieldManager", names.FIELD_MANAGER)]
        return await self._transport.call(
            Request("POST", path, lease, query, verb=("create", key.kind), priority=None, resend=False, for_lease=True)
        )

    async def put_lease(self, lease: Mapping[str, Any]) -> Manifest:
        """Write the Lease with the resourceVersion that was read; Conflict when somebody was faster."""
        key = ObjectKey.of(lease)
        query = [("fieldManager", names.FIELD_MANAGER)]
        return await self._transport.call(
            Request(
                "PUT",
                self._path(key),
                lease,
                query,
                verb=("put", key.kind),
                priority=None,
                resend=False,
                for_lease=True,
            )
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
        await self._transport.relogin()
