"""A cluster as Python sees it: kubectl, images, and breaking one component on purpose."""

from __future__ import annotations

import json
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import controlplane, hostpaths, images, inside, kubectl, kwok, lifecycle, processes
from cluster.errors import ClusterError
from cluster.paths import locked
from cluster.state import Profile, State, load

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

POLICY_SECONDS = 30.0
NODE_PREFIX = "fake"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster, named by its state file; any number of these may point at one cluster."""

    name: str

    @property
    def state(self) -> State:
        """The state as it is written now."""
        if state := load(self.name):
            return state
        raise ClusterError(f"there is no cluster {self.name!r}; `python -m cluster up --name {self.name}` makes one")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self.state.server

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002
        check: bool = True,
        timeout: float = kubectl.SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; with `check`, a failure raises with what kubectl said."""
        return kubectl.run(self.kubeconfig, *arguments, stdin=input, check=check, timeout=timeout)

    def apply(self, *objects: Mapping[str, Any], namespace: str | None = None) -> None:
        """Apply objects, server-side."""
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        where = ["--namespace", namespace] if namespace else []
        self.kubectl("apply", "--server-side", *where, "-f", "-", input=items)

    def get(self, *arguments: str) -> Any:
        """`kubectl get ... -o json`, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-ojson").stdout)

    def new_namespace(self, prefix: str = "test", labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace with a name of its own and wait until pods can be created in it."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}})
        state = self.state
        for thing in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            path = f"/api/v1/namespaces/{name}/{thing}"
            processes.wait_for(state, f"{path} exists", lambda p=path: controlplane.answers(state, p), 30)  # type: ignore[misc]
        return name

    # Breaking things

    def kill(self, component: str, sig: int = signal.SIGKILL) -> None:
        """Send a signal to one component and, unless the signal only stops or continues it, wait for its end."""
        process = processes.of_component(self.state, component)
        process.send_signal(sig)
        if sig in (signal.SIGKILL, signal.SIGTERM):
            processes.end([process])

    def start(self, component: str) -> None:
        """Start one component that does not run, with the same command as before, and wait until it is ready."""
        with locked(f"cluster-{self.name}"):
            lifecycle.start_component(self.state, component)

    def restart(self, component: str, sig: int = signal.SIGTERM) -> None:
        """End one component (SIGTERM, or SIGKILL for a crash) and start it again."""
        self.kill(component, sig)
        self.start(component)

    def running(self) -> dict[str, bool]:
        """Each component and whether it runs."""
        state = self.state
        dead = processes.dead_components(state)
        return {name: name not in dead for name in state.components}

    def log(self, component: str) -> Path:
        """The log file of a component."""
        return self.state.log(component)

    def audit(self) -> list[dict[str, Any]]:
        """Every request to the API server so far (user, userAgent, verb, objectRef, ...); needs `up(audit=True)`."""
        state = self.state
        if not state.audit:
            raise ClusterError(f"cluster {self.name} was not started with audit=True")
        return [json.loads(line) for line in state.audit_log.read_text().splitlines()]

    # Profile fake-nodes

    def add_fake_nodes(
        self, count: int, *, prefix: str = NODE_PREFIX, product: str = kwok.GPU_PRODUCT, gpus: int = kwok.GPUS
    ) -> list[str]:
        """Add fake GPU nodes `<prefix>-0` and so on, and wait until they are Ready."""
        self._require(Profile.FAKE_NODES)
        names = [f"{prefix}-{number}" for number in range(count)]
        if not names:
            return names
        nodes = [kwok.node(name, product=product, gpus=gpus) for name in names]
        self.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
        state = self.state
        processes.wait_for(state, f"{count} fake nodes are Ready", lambda: self._ready(names), kwok.READY_SECONDS, 0.3)
        return names

    def _ready(self, names: list[str]) -> bool:
        nodes = {item["metadata"]["name"]: item for item in self.get("nodes")["items"]}
        return all(
            not nodes[name]["spec"].get("taints")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in nodes[name]["status"].get("conditions", []))
            for name in names
        )

    # Profile node

    def run_in_node(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of the host, or `ctr`, inside the node's namespaces."""
        self._require(Profile.NODE)
        return inside.run(self.state, *command, check=check)

    def import_scratch_image(
        self,
        name: str,
        files: Mapping[str, Path | bytes] | None = None,
        symlinks: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        entrypoint: tuple[str, ...] = (),
        *,
        folders: tuple[str, ...] = (),
        user: str = "",
        workdir: str = "/",
    ) -> None:
        """Make an image of these files and links alone and import it into the node (paths without a leading slash)."""
        self._require(Profile.NODE)
        image = images.ScratchImage(name, files or {}, symlinks or {}, folders, env or {}, entrypoint, user, workdir)
        images.load(self.state, image)

    def mount_host_paths(self, image: str, paths: Mapping[str, str]) -> None:
        """Mount folders of the host (host path -> mount path) read-only into each container that uses this image.

        Holds for pods created from now on; returns when the API server does it. The folders must be readable by
        the user that the pods run as, and /var and /run are the node's own, not the host's.
        """
        self._require(Profile.NODE)
        self.apply(*hostpaths.policy(image, paths)["items"])
        state, probe, wanted = self.state, json.dumps(hostpaths.probe(image)), set(paths.values())
        processes.wait_for(state, f"host paths of {image}", lambda: self._mounts(probe) >= wanted, POLICY_SECONDS)

    def _mounts(self, pod: str) -> set[str]:
        created = json.loads(self.kubectl("create", "--dry-run=server", "-ojson", "-f", "-", input=pod).stdout)
        return {mount["mountPath"] for mount in created["spec"]["containers"][0].get("volumeMounts", [])}

    # The whole

    def environment(self) -> dict[str, str]:
        """What a shell needs to work with this cluster."""
        folder = Path(kubectl.binary()).parent
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}

    def down(self) -> None:
        """End every process of the cluster and remove what it made; safe to call again."""
        lifecycle.down(self.name)

    def _require(self, profile: Profile) -> None:
        if self.state.profile is not profile:
            raise ClusterError(f"cluster {self.name} has profile {self.state.profile}; this needs --profile {profile}")


def up(
    name: str = "default",
    profile: Profile = Profile.CONTROLPLANE,
    *,
    fake_nodes: int = 0,
    audit: bool = False,
    owned: bool = False,
) -> Cluster:
    """Start a cluster, or find it running; what a failed or interrupted start has made is removed again.

    With `audit`, the API server writes every request to `Cluster.audit()`.
    With `owned`, the cluster belongs to this process: a later start removes it when this process is gone.
    """
    created = lifecycle.up(name, profile, audit=audit, owned=owned)
    cluster = Cluster(name)
    if created and fake_nodes:
        cluster.add_fake_nodes(fake_nodes)
    return cluster
