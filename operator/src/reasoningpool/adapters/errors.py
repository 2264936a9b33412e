"""What the API server's refusals mean for us: retry, report, or accept.

The classes follow what API servers really answer, which is not what the status code alone says: an unknown
field in a server-side apply is a 500, a group that is not installed is a 404 in plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reasoningpool.objects import redacted

# Status messages are read in `kubectl describe`; one screen line or two is what helps there.
MAX_MESSAGE_LENGTH: Final = 512
_MAX_CAUSES: Final = 3
_MAX_CAUSE_LENGTH: Final = 240

_TYPED_PATCH: Final = "failed to create typed patch object"
_UNKNOWN_RESOURCE: Final = "the server could not find the requested resource"
# Between these two the message about an immutable field may carry a Go dump of a whole list.
_INVALID: Final = "Invalid value: "
_IMMUTABLE: Final = "field is immutable"
# Refusals repeat the values of the spec, so their length is up to whoever wrote it.
_MAX_READ: Final = 16_384


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes` of a Kubernetes Status."""

    reason: str
    field: str
    message: str


class KubeError(Exception):
    """A request the API server did not carry out."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after


class NotLeading(Exception):  # noqa: N818
    """Leadership ended; nothing may be written any more. No answer of the API server: the request was not sent."""


class Permanent(KubeError):  # noqa: N818 - a kind of answer, not an error of ours
    """The request is wrong and stays wrong until it, or the object, changes."""

    @property
    def immutable(self) -> bool:
        """Whether the refusal is about a field that cannot change on an existing object."""
        return self.status == 422 and any(
            "is immutable" in cause.message or "updates to statefulset spec" in cause.message for cause in self.causes
        )

    @property
    def invalid_fields(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the spec's fields that are invalid on the object as a whole, each up to the first list in it."""
        if self.status != 422 or self.immutable:
            return ()
        paths = {tuple(cause.field.partition("[")[0].split(".")) for cause in self.causes if cause.field}
        return tuple(sorted(path for path in paths if path[0] == "spec"))


class NotInstalled(Permanent):
    """The cluster does not serve this kind at all."""


class Forbidden(KubeError):  # noqa: N818
    """RBAC or an admission policy says no; only a person can change that."""

    @property
    def namespace_terminating(self) -> bool:
        """Whether the namespace is going away, which answers every create with 403."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)


class NotFound(KubeError):  # noqa: N818
    """The object or its namespace is not there."""


class Conflict(KubeError):  # noqa: N818
    """The object is not the one that was read, exists already, or a field belongs to somebody else."""

    @property
    def already_exists(self) -> bool:
        """Whether a create met an object of that name."""
        return self.reason == "AlreadyExists"

    @property
    def field_managers(self) -> tuple[Cause, ...]:
        """The fields that other managers own, when that is what the conflict is about."""
        return tuple(cause for cause in self.causes if cause.reason == "FieldManagerConflict")


class Transient(KubeError):  # noqa: N818
    """Worth another try later: overload, a server on its way up or down."""


class Unreachable(Transient):
    """No answer came at all; the next request will hardly fare better."""


_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    401: Transient,  # again after a new login; the request itself may be right
    403: Forbidden,
    404: NotFound,
    408: Transient,
    409: Conflict,
    410: NotFound,
    429: Transient,
}


def classify(
    status: int, body: Mapping[str, Any] | None, text: str = "", retry_after: float | None = None
) -> KubeError:
    """The error for an answer of 300 and above; `body` is None when the answer was not JSON."""
    if body is None:
        if status == 404:
            return NotInstalled("the cluster does not serve this kind", status=404, reason="NotInstalled")
        body = {"message": text}
    causes = _causes(body)
    raw = str(body.get("message") or f"HTTP {status}")
    kind = _class_of(status, raw)
    reason = str(body.get("reason") or "")
    return kind(describe(raw, causes), status=status, reason=reason, causes=causes, retry_after=retry_after)


def _class_of(status: int, raw_message: str) -> type[KubeError]:
    if status == 404 and _UNKNOWN_RESOURCE in raw_message:
        return NotInstalled
    if status == 500 and raw_message.startswith(_TYPED_PATCH):
        return Permanent
    return _BY_STATUS.get(status) or (Permanent if 400 <= status < 500 else Transient)


def _causes(body: Mapping[str, Any]) -> tuple[Cause, ...]:
    details = body.get("details") or {}
    return tuple(
        Cause(str(cause.get("reason") or ""), str(cause.get("field") or ""), str(cause.get("message") or ""))
        for cause in details.get("causes") or ()
    )


def describe(message: str, causes: tuple[Cause, ...]) -> str:
    """A message short enough for a condition: the first causes with their fields, without value dumps."""
    telling = [cause for cause in causes if cause.message and cause.field not in {"", "<nil>"}]
    if not telling:
        return shorten(message)
    parts = [
        shorten(f"{cause.field.lstrip('.')}: {_plain(cause.message)}", _MAX_CAUSE_LENGTH)
        for cause in telling[:_MAX_CAUSES]
    ]
    if len(telling) > _MAX_CAUSES:
        parts.append(f"and {len(telling) - _MAX_CAUSES} more")
    return shorten("; ".join(parts))


def _plain(message: str) -> str:
    start = message.find(_INVALID)
    end = message.find(_IMMUTABLE, start)
    return message if start < 0 or end < 0 else message[:start] + message[end:]


def shorten(text: str, limit: int = MAX_MESSAGE_LENGTH) -> str:
    """One line of at most `limit` characters without secrets, cut in the middle so that both ends can be read."""
    half = _MAX_READ // 2
    line = redacted(" ".join((text if len(text) <= _MAX_READ else f"{text[:half]} ... {text[-half:]}").split()))
    if len(line) <= limit:
        return line
    tail = limit // 3
    return f"{line[: limit - tail - 5]} ... {line[-tail:]}"
