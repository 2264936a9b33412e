"""What can be set about a running operator: one declaration for flags, environment variables, help and documents.

Each field of `Settings` is an option of `reasoningpool run`. Its type, its default and its `Option` are all there is
to say about it: the command line, `docs/reference/settings.md` and the tests read them through `declared`.
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

ENV_PREFIX: Final = "REASONINGPOOL_"
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
NAMESPACE_NAME: Final = re.compile(_LABEL)
OBJECT_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_DAY_SECONDS: Final = 86_400
# The kubelet adds these, as NAME=value, where a Service of the operator's namespace is named reasoningpool-something.
_SERVICE_LINK: Final = re.compile(r"\w+(_SERVICE_HOST|_SERVICE_PORT|_PORT_\d+_|_PORT=(tcp|udp|sctp)://)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What an option's type and default do not say."""

    help: str
    name: str = ""
    """Of the flag and the variable, where it differs from the field: a repeated flag is singular."""
    default_text: str = ""
    """What the default means, where its value does not say it."""
    metavar: str = ""
    minimum: int | None = None
    maximum: int | None = None
    above_minimum: bool = False
    """The minimum itself is not allowed."""
    pattern: re.Pattern[str] | None = None
    """What each text must match as a whole."""
    pattern_name: str = ""


_SECONDS: Final[dict[str, Any]] = {"metavar": "SECONDS", "minimum": 0, "above_minimum": True, "maximum": _DAY_SECONDS}
_NAMESPACE: Final[dict[str, Any]] = {
    "metavar": "NAMESPACE",
    "pattern": NAMESPACE_NAME,
    "pattern_name": "a namespace name",
}
_OBJECT: Final[dict[str, Any]] = {"metavar": "NAME", "pattern": OBJECT_NAME, "pattern_name": "an object name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's options. A flag wins over its environment variable, and that over the default."""

    namespaces: Annotated[
        tuple[str, ...],
        Option(name="namespace", help="Serve only this namespace.", default_text="all namespaces", **_NAMESPACE),
    ] = ()
    kubeconfig: Annotated[
        str,
        Option(
            help="Kubeconfig file.",
            metavar="FILE",
            default_text="the pod's service account, else $KUBECONFIG, else ~/.kube/config",
        ),
    ] = ""
    context: Annotated[
        str, Option(help="Context of the kubeconfig.", metavar="NAME", default_text="the current context")
    ] = ""
    leader_election: Annotated[
        bool, Option(help="Write only while holding a Lease, so that several replicas of the operator can run.")
    ] = True
    lease_name: Annotated[str, Option(help="Name of the Lease.", **_OBJECT)] = "reasoningpool-operator"
    lease_namespace: Annotated[
        str,
        Option(help="Namespace of the Lease.", default_text="the operator's namespace, else default", **_NAMESPACE),
    ] = ""
    identity: Annotated[
        str,
        Option(
            help="Name of this replica in the Lease and in events.",
            metavar="NAME",
            default_text="the host name, which in a pod is the pod's name",
        ),
    ] = ""
    health_host: Annotated[str, Option(help="Address on which /healthz and /readyz listen.", metavar="ADDRESS")] = (
        "0.0.0.0"  # noqa: S104 - the kubelet probes the pod's address
    )
    health_port: Annotated[
        int,
        Option(
            help="Port of /healthz and /readyz; 0 takes any free port, -1 serves neither.", minimum=-1, maximum=65_535
        ),
    ] = 8080
    log_format: Annotated[Literal["json", "text"], Option(help="Format of log lines.")] = "json"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Option(help="Least severity that is logged.")
    ] = "info"
    resync_seconds: Annotated[float, Option(help="Time between two reconciliations of a pool at rest.", **_SECONDS)] = (
        300.0
    )
    compare_seconds: Annotated[
        float,
        Option(
            help="Time between two comparisons of everything with a list, in case a watch missed something.", **_SECONDS
        ),
    ] = 420.0
    # API servers send a bookmark a minute, and keep what was missed for 75 seconds at the least.
    watch_silence_seconds: Annotated[
        float,
        Option(
            help="A watch without an event or bookmark for this long is opened again; "
            "/healthz fails after about twice this time.",
            **_SECONDS,
        ),
    ] = 70.0
    concurrency: Annotated[int, Option(help="API requests in flight at once.", minimum=1, maximum=1_000)] = 16
    runtime_image: Annotated[
        str,
        Option(
            help="Image of the request runtime for pools that name none; without one their pods run without it.",
            metavar="IMAGE",
            default_text="none",
        ),
    ] = ""
    allowed_service_accounts: Annotated[
        tuple[str, ...],
        Option(
            name="allowed-service-account",
            help="Service account that podOverrides of pools may name.",
            default_text="none",
            **_OBJECT,
        ),
    ] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One option of the operator as its field declares it."""

    field: str
    type: type
    """`str`, `bool`, `int` or `float`; of each value where the option may be repeated."""
    repeated: bool
    choices: tuple[str, ...]
    default: Any
    option: Option

    @property
    def name(self) -> str:
        """The flag without its dashes."""
        return self.option.name or self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENV_PREFIX + self.name.replace("-", "_").upper()

    @property
    def default_text(self) -> str:
        """The default for people."""
        if self.option.default_text:
            return self.option.default_text
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def declared() -> tuple[Declared, ...]:
    """Every option, in the order of the fields."""
    hints = get_type_hints(Settings, include_extras=True)
    return tuple(_declared(item.name, hints[item.name], item.default) for item in fields(Settings))


def _declared(field: str, hint: Any, default: Any) -> Declared:
    value, option = get_args(hint)
    repeated, choices = get_origin(value) is tuple, get_args(value) if get_origin(value) is Literal else ()
    kind = str if choices else get_args(value)[0] if repeated else value
    if default is MISSING or not isinstance(option, Option):
        raise TypeError(f"{field}: an option of the operator has a default and an Option")
    return Declared(field=field, type=kind, repeated=repeated, choices=choices, default=default, option=option)


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """A variable with the operator's prefix that is none of its options."""

    name: str
    nearest: str | None
    """The option's variable it may be a misspelling of."""


def unknown_variables(environ: Mapping[str, str]) -> tuple[UnknownVariable, ...]:
    """Variables that an operator with a misspelled option would silently run without.

    What the kubelet adds for Services is left out.
    """
    known = [entry.variable for entry in declared()]
    unknown = sorted(
        name
        for name, value in environ.items()
        if name.startswith(ENV_PREFIX) and name not in known and not _SERVICE_LINK.match(f"{name}={value}")
    )
    return tuple(UnknownVariable(name, next(iter(_near(name, known)), None)) for name in unknown)


def _near(name: str, known: list[str]) -> list[str]:
    by_end = {entry.removeprefix(ENV_PREFIX): entry for entry in known}
    return [by_end[end] for end in difflib.get_close_matches(name.removeprefix(ENV_PREFIX), by_end, n=1)]
