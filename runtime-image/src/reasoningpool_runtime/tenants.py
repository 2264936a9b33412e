"""Who a request belongs to, and the cache salt that keeps tenants' prefix caches apart. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from reasoningpool_runtime.contract import Tenants, TenantSource
from reasoningpool_runtime.errors import RefusalError


@dataclass(frozen=True)
class Tenant:
    """`name`: the header's value, or the SHA-256 of the API key; `salt`: what vLLM gets, None for none."""

    name: str | None
    salt: str | None


def identify(tenants: Tenants, headers: Mapping[str, str], client_salt: object, *, secret: bytes = b"") -> Tenant:
    """The tenant of a request.

    The salt is a keyed hash, because vLLM publishes it in clear in its KV events. A client's own salt counts only
    where the tier allows it, and then within its tenant.

    Raises:
        RefusalError: the tenant is missing and required (400).
    """
    if tenants.source is TenantSource.NONE:
        return Tenant(None, None)
    allowed = client_salt if tenants.allow_client_salt and isinstance(client_salt, str) and client_salt else None
    name = _name(tenants, headers)
    if name is None and tenants.required:
        missing = tenants.header if tenants.source is TenantSource.HEADER else "authorization"
        raise RefusalError(400, "tenant_missing", f"Header {missing!r} is required: it names the tenant.")
    digest = hmac.new(secret, _framed(name) + _framed(allowed), hashlib.sha256)
    return Tenant(name, digest.hexdigest())


def _framed(part: str | None) -> bytes:
    """A part with its length, so that no two lists of parts give the same bytes."""
    raw = b"" if part is None else part.encode("utf-8", "surrogateescape")
    return b"%d:" % (-1 if part is None else len(raw)) + raw


def _name(tenants: Tenants, headers: Mapping[str, str]) -> str | None:
    if tenants.source is TenantSource.HEADER:
        return headers.get(tenants.header.lower(), "").strip() or None
    key = headers.get("authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "").strip()
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest() if key else None
