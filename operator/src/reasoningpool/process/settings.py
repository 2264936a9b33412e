"""What can be set about a running operator, in one frozen value."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

ENV_PREFIX: Final = "REASONINGPOOL_"
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEVELS: Final = ("debug", "info", "warning", "error")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


class BadSettings(ValueError):  # noqa: N818
    """A setting that cannot be used; the message names it and says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every field may come from a flag or from REASONINGPOOL_<FIELD>; a flag wins."""

    namespaces: tuple[str, ...] | None = None
    """Namespaces to serve; None serves all of them."""
    kubeconfig: str | None = None
    """A kubeconfig file; None means the pod's service account, else KUBECONFIG, else ~/.kube/config."""
    context: str | None = None
    """The kubeconfig context; None means the current one."""
    leader_election: bool = True
    """Take a Lease before writing anything, so that several replicas can run."""
    lease_name: str = "reasoningpool-operator"
    lease_namespace: str = ""
    """Empty: the namespace of the operator's pod, else `default`."""
    identity: str = ""
    """Who holds the Lease; empty: the host's name, which in a pod is the pod's."""
    health_host: str = "0.0.0.0"  # noqa: S104 - probes come from the node
    health_port: int = 8080
    """Port of /healthz and /readyz; 0 takes any free port, -1 serves none."""
    log_format: str = "json"
    log_level: str = "info"
    resync_seconds: float = 300.0
    """How often a pool at rest is looked at again."""
    compare_seconds: float = 420.0
    """How often everything is compared with a list, in case a watch missed something."""
    watch_silence_seconds: float = 70.0
    """A watch that says nothing for so long is opened anew; twice that without a word, and /healthz fails.

    API servers send a bookmark a minute, and keep what was missed for 75 seconds at the least.
    """
    concurrency: int = 16
    """API requests under way at once."""
    allowed_service_accounts: tuple[str, ...] = ()
    """Service accounts that pools may name for their pods; empty allows none but the operator's own."""

    def __post_init__(self) -> None:
        for namespace in (*(self.namespaces or ()), *filter(None, [self.lease_namespace])):
            if not _DNS_LABEL.fullmatch(namespace):
                message = f"{namespace!r} is not a namespace name"
                raise BadSettings(message)
        if self.namespaces == ():
            message = "namespaces is empty: name at least one, or leave it out to serve all"
            raise BadSettings(message)
        if self.log_format not in {"json", "text"}:
            message = f"log format {self.log_format!r}: write json or text"
            raise BadSettings(message)
        if self.log_level not in _LEVELS:
            message = f"log level {self.log_level!r}: write one of {', '.join(_LEVELS)}"
            raise BadSettings(message)
        for name in ("resync_seconds", "compare_seconds", "watch_silence_seconds", "concurrency"):
            if getattr(self, name) <= 0:
                message = f"{name} is {getattr(self, name)}: it must be above 0"
                raise BadSettings(message)
        if not -1 <= self.health_port <= 65535:
            message = f"health_port is {self.health_port}: write a port, 0 for any, -1 for none"
            raise BadSettings(message)

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None, **flags: object) -> Self:
        """Settings from flags (None means not given) and the environment."""
        env = os.environ if environ is None else environ
        known = {item.name: item for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, item in known.items():
            text = env.get(ENV_PREFIX + name.upper())
            if text is not None and text.strip():
                values[name] = _parse(name, str(item.type), text.strip())
        values.update({name: value for name, value in flags.items() if value is not None})
        return cls(**values)

    def lease_home(self) -> str:
        """The namespace of the Lease."""
        if self.lease_namespace:
            return self.lease_namespace
        try:
            return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
        except OSError:
            return "default"

    def own_name(self) -> str:
        """Who we are in the Lease and in events."""
        return self.identity or socket.gethostname()


def _parse(name: str, kind: str, text: str) -> Any:
    try:
        if "tuple" in kind:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if kind == "bool":
            return _boolean(text)
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError as error:
        message = f"{ENV_PREFIX}{name.upper()}={text!r}: {error}"
        raise BadSettings(message) from error
    return text


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower in _TRUE | _FALSE:
        return lower in _TRUE
    message = "write true or false"
    raise ValueError(message)
