"""Starting and removing a cluster as a whole, and one component of it again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster import builds, controlplane, dns, kubectl, kwok, network, node, processes, tools
from cluster.errors import ClusterError
from cluster.paths import locked
from cluster.progress import Progress
from cluster.state import Profile, State, all_states, cluster_folder, load

if TYPE_CHECKING:
    from cluster.progress import Progress as Shown


def prepare(profile: Profile) -> None:
    """Build and fetch what a profile needs; the second time there is nothing to do."""
    builds.ensure(builds.KUBERNETES)
    match profile:
        case Profile.FAKE_NODES:
            builds.ensure(kwok.KWOK)
        case Profile.NODE:
            node.require()
            tools.ensure()
            builds.ensure(dns.COREDNS)
        case Profile.CONTROLPLANE:
            pass


def up(name: str, profile: Profile, *, audit: bool = False, owned: bool = False) -> bool:
    """Start a cluster; False when it ran already. What a failed or interrupted start has made is removed again."""
    cluster_folder(name)  # refuses a bad name before anything is built
    prepare(profile)
    _remove_orphans()
    with locked(f"cluster-{name}"):
        if (state := load(name)) and _usable(state, profile):
            return False
        state = _new_state(name, profile, audit=audit, owned=owned)
        try:
            with Progress(f"starting cluster {name} ({profile})") as progress:
                _start(state, progress)
        except BaseException:
            _stop(state)
            raise
    return True


def down(name: str) -> bool:
    """Remove the cluster `name` and everything that it made; False when there was none."""
    cluster_folder(name)
    with locked(f"cluster-{name}"):
        state = load(name)
        if state:
            _stop(state)
            state.remove()
    return state is not None


def start_component(state: State, name: str) -> None:
    """Start one component that does not run, and wait until it is ready."""
    if name not in state.components or name == processes.HOLDER:
        others = ", ".join(sorted(set(state.components) - {processes.HOLDER}))
        raise ClusterError(f"cluster {state.name} cannot start {name!r}; it has: {others}")
    if name not in processes.dead_components(state):
        return
    if name == "kwok":
        _release_fake_nodes(state)
    processes.start(state, state.components[name])
    if name in ("etcd", "kube-apiserver"):
        controlplane.wait_ready(state)
    if name == "kubelet":
        node.wait_ready(state)


def _release_fake_nodes(state: State) -> None:
    """Remove the leases of fake nodes: a new kwok leaves a node alone until another holder's lease has run out."""
    leases = json.loads(kubectl.run(state.kubeconfig, "get", "leases", "-n", "kube-node-lease", "-ojson").stdout)
    if names := [item["metadata"]["name"] for item in leases["items"]]:
        kubectl.run(state.kubeconfig, "delete", "leases", "-n", "kube-node-lease", *names)


def _usable(state: State, profile: Profile) -> bool:
    """Whether this cluster runs and is what is asked for; the remains of a failed start or a reboot are removed."""
    dead = processes.dead_components(state)
    if not state.ready or len(dead) == len(state.components):
        _stop(state)
        return False
    if state.profile is not profile:
        raise ClusterError(
            f"cluster {state.name} runs with profile {state.profile}; remove it first or use another --name"
        )
    if dead:
        try:
            processes.check(state)
        except ClusterError as error:
            raise ClusterError(
                f"{error}\nremove the cluster with `python -m cluster down --name {state.name}` and start it again"
            ) from error
    return True


def _new_state(name: str, profile: Profile, *, audit: bool, owned: bool) -> State:
    """Choose what no other cluster uses, and write it down before it is used."""
    with locked("choice"):
        state = State(name, profile, audit=audit)
        others = [other for other in all_states() if other.name != name]
        if owned:
            state.owner = processes.this_process()
        if profile is Profile.NODE:
            state.ports = dict(controlplane.FIXED_PORTS)  # in a network namespace of its own
            taken = [other.network.block for other in others if other.network]
            state.network = network.choose(tools.ensure(), state.identity, taken)
        else:
            state.ports = controlplane.choose_ports(port for other in others for port in other.ports.values())
        if state.folder.exists():
            state.remove()
        state.save()
    return state


def _start(state: State, progress: Shown) -> None:
    progress.update("certificates", last=True)
    controlplane.write_files(state)
    if state.profile is Profile.NODE:
        progress.update("namespaces", last=True)
        node.start_network(state)
    progress.update("control plane", last=True)
    controlplane.start(state)
    controlplane.wait_controllers(state)
    match state.profile:
        case Profile.FAKE_NODES:
            progress.update("kwok", last=True)
            kwok.start(state)
        case Profile.NODE:
            node.start(state, progress)
        case Profile.CONTROLPLANE:
            pass
    processes.check(state)
    state.ready = True
    state.save()


def _stop(state: State) -> None:
    """End the processes and remove everything outside the cluster's folder, whose logs stay for the reader."""
    processes.end(processes.marked(state), seconds=0)
    if state.profile is Profile.NODE:
        node.stop(state)


def _remove_orphans() -> None:
    """Remove clusters whose owner is gone, such as those of a test session that was killed."""
    for state in all_states():
        if state.owner and not processes.alive(state.owner):
            down(state.name)
