"""What is known about one cluster, written to its folder before anything is made that would have to be removed."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from cluster.errors import ClusterError
from cluster.paths import clusters_root, write_atomically

T = TypeVar("T")

STATE_FILE = "cluster.json"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")


class Profile(StrEnum):
    """What a cluster consists of."""

    CONTROLPLANE = "controlplane"
    FAKE_NODES = "fake-nodes"
    NODE = "node"


class Place(StrEnum):
    """Where a component runs."""

    HOST = "host"
    NETWORK = "network"  # in the cluster's network namespace only
    NODE = "node"  # in the network, mount and process namespaces of the node


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster: enough to start it again from any process."""

    name: str
    command: list[str]
    place: Place = Place.HOST
    environment: dict[str, str] = field(default_factory=dict)
    forks: bool = False
    """The command only waits for its only child, which is the component."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from a later one with the same number by when it started: in ticks since that boot."""

    pid: int
    boot: str = ""
    started_ticks: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses of a cluster with a node; all of them inside one block of its own."""

    block: str
    host: str
    node: str
    pods: str
    services: str
    host_interface: str


@dataclass(slots=True)
class State:
    """The state file. `identity` marks every process of this cluster in its environment."""

    name: str
    profile: Profile
    identity: str = field(default_factory=lambda: secrets.token_hex(12))
    ready: bool = False
    audit: bool = False
    """Whether the API server writes down every request."""
    owner: ProcessId | None = None
    """The process without which the cluster has no reason to be: a test session."""
    ports: dict[str, int] = field(default_factory=dict)
    network: Network | None = None
    components: dict[str, Component] = field(default_factory=dict)
    processes: dict[str, ProcessId] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the cluster."""
        return cluster_folder(self.name)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The API server's log of requests, one JSON object a line."""
        return self.folder / "logs" / "audit.jsonl"

    def log(self, component: str) -> Path:
        """The log file of a component."""
        return self.folder / "logs" / f"{component}.log"

    def pki(self, file: str) -> str:
        """The path of a certificate, key or token."""
        return str(self.folder / "pki" / file)

    @property
    def api_address(self) -> str:
        """The address that the API server listens on."""
        return self.network.node if self.network else "127.0.0.1"

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.api_address}:{self.ports['kube-apiserver']}"

    def save(self) -> None:
        """Write the state file."""
        write_atomically(self.folder / STATE_FILE, json.dumps(asdict(self), indent=2))

    def remove(self) -> None:
        """Forget the cluster: its folder goes, the state file last, so that an interrupted removal can go on."""
        if mounts := mounts_below(self.folder):  # removing what is mounted there would remove the host's own files
            raise ClusterError(f"something is still mounted in the cluster's folder, so it stays: {', '.join(mounts)}")
        for path in self.folder.iterdir() if self.folder.exists() else ():
            if path.name == STATE_FILE:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def cluster_folder(name: str) -> Path:
    """The folder of the cluster `name`; names are checked, since `down` removes this folder."""
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"cluster name {name!r}: use at most 30 of a-z, 0-9 and '-', starting and ending with a letter or digit"
        )
    return clusters_root() / name


def mounts_below(folder: Path) -> list[str]:
    """The mount points in a folder, as this process sees them."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except FileNotFoundError:
        return []  # not Linux, where clusters mount nothing
    return [point for line in lines if (point := line.split()[4]).startswith(f"{folder}/")]


def load(name: str) -> State | None:
    """The state of the cluster `name`, or None where there is none; also one that another version has written."""
    try:
        raw: dict[str, Any] = json.loads((cluster_folder(name) / STATE_FILE).read_text())
    except FileNotFoundError:
        return None
    raw["profile"] = Profile(raw["profile"])
    raw["owner"] = _known(ProcessId, raw.get("owner"))
    raw["network"] = _known(Network, raw.get("network"))
    components = raw.get("components", {}).items()
    raw["components"] = {n: _known(Component, c | {"place": Place(c["place"])}) for n, c in components}
    raw["processes"] = {n: _known(ProcessId, p) for n, p in raw.get("processes", {}).items()}
    return _known(State, raw)


def _known(kind: type[T], values: dict[str, Any] | None) -> T | None:
    """Build `kind` from the values that it has fields for."""
    if values is None:
        return None
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def all_states() -> list[State]:
    """Every cluster of this cache, by name."""
    root = clusters_root()
    names = sorted(p.parent.name for p in root.glob(f"*/{STATE_FILE}")) if root.exists() else []
    return [state for name in names if (state := load(name))]
