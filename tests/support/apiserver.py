"""A raw client of the test cluster's API server: requests as a user's tool would send them, answers unaltered."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode, urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Answer:
    """A status code and a decoded body."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class ApiServer:
    """One kept-alive connection; not for use by several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context()
        if "certificate-authority-data" in cluster:
            context.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        elif "certificate-authority" in cluster:
            context.load_verify_locations(cafile=cluster["certificate-authority"])
        server = urlsplit(cluster["server"])
        assert server.hostname
        self._connection = http.client.HTTPSConnection(server.hostname, server.port, context=context, timeout=30)
        self._headers = {"Accept": "application/json", "Authorization": f"Bearer {user['token']}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body)
        for attempt in (1, 2):
            try:
                self._connection.request(method, target, data, self._headers | {"Content-Type": content_type})
                response = self._connection.getresponse()
                raw = response.read()
                break
            except (http.client.HTTPException, ConnectionError):
                self._connection.close()  # the server restarted; once more on a fresh connection
                if attempt == 2:
                    raise
        try:
            decoded = json.loads(raw)
        except ValueError:
            decoded = {"message": raw.decode(errors="replace")}
        return Answer(response.status, decoded if isinstance(decoded, dict) else {"message": str(decoded)})

    def pools(self, namespace: str) -> str:
        return f"/apis/reasoningpool.io/v1alpha1/namespaces/{namespace}/reasoningpools"

    def try_create(self, namespace: str, pool: Mapping[str, Any], *, dry_run: bool = True) -> Answer:
        """Create a pool as `kubectl create` does: unknown fields are refused."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("POST", self.pools(namespace), pool, **query)

    def apply(self, path: str, body: Any, manager: str = "test") -> Answer:
        """Server-side apply."""
        return self.request(
            "PATCH", path, body, content_type="application/apply-patch+yaml", fieldManager=manager, force="true"
        )
