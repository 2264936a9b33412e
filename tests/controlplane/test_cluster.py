"""The local cluster: it starts fast, tells what is wrong, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from cluster import builds, controlplane, core, kwok, lifecycle, processes
from cluster.errors import ClusterError
from cluster.state import STATE_FILE, Component, Profile, State, all_states, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)

COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
MAIN_GO = 'package main\n\nfunc main() { println("one") }\n'


def cli(*arguments: str) -> subprocess.Popen[str]:
    """`python -m cluster ...` as a person would start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "cluster", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and what was printed."""
    output, _ = process.communicate()
    return process.returncode, output


def wait_until(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def with_identity(identity: str) -> list[int]:
    """Every process that belongs to a cluster, found without the cluster's own code."""
    found = []
    for process in psutil.process_iter():
        try:
            if identity in process.environ().values():
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def started(name: str, count: int) -> Callable[[], bool]:
    """Whether at least `count` components of a cluster are written down."""
    return lambda: (state := load(name)) is not None and len(state.processes) >= count


def statefulset(replicas: int, gpus: int, product: str | None = None) -> dict[str, object]:
    container = {"name": "engine", "image": "engine:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"containers": [container], "nodeSelector": {kwok.GPU_LABEL: product} if product else {}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "engine"},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "engine"}},
            "template": {"metadata": {"labels": {"app": "engine"}}, "spec": spec},
        },
    }


@pytest.mark.usefixtures("own_cache")
def test_control_plane_is_ready_when_up_returns() -> None:
    cluster = core.up("fast")
    assert cluster.running() == dict.fromkeys(COMPONENTS, True)
    assert "kube-system" in cluster.kubectl("get", "namespaces", "-oname").stdout


def test_kubectl_sees_the_pinned_version(controlplane: core.Cluster) -> None:
    version = json.loads(controlplane.kubectl("version", "-ojson").stdout)
    assert version["serverVersion"]["gitVersion"] == f"v{builds.KUBERNETES_VERSION}"


def test_kubectl_failure_is_reported_in_kubectls_words(controlplane: core.Cluster) -> None:
    with pytest.raises(ClusterError, match='namespaces "absent" not found'):
        controlplane.kubectl("get", "namespace", "absent")


def test_admission_policies_are_served_in_v1(controlplane: core.Cluster) -> None:
    names = controlplane.kubectl("api-resources", "--api-group=admissionregistration.k8s.io", "--no-headers").stdout
    for line in ("mutatingadmissionpolicies", "validatingadmissionpolicies"):
        assert any(row.split()[0] == line and "admissionregistration.k8s.io/v1 " in row for row in names.splitlines())


def test_new_namespaces_are_distinct_and_take_pods(controlplane: core.Cluster) -> None:
    first, second = controlplane.new_namespace(), controlplane.new_namespace("other", {"team": "a"})
    assert first != second
    assert controlplane.get("namespace", second)["metadata"]["labels"]["team"] == "a"
    controlplane.kubectl("--namespace", first, "run", "pod", "--image=none:1")


def test_objects_survive_a_restart_and_a_crash_of_the_api_server(controlplane: core.Cluster) -> None:
    namespace = controlplane.new_namespace()
    for sig in (signal.SIGTERM, signal.SIGKILL):
        before = controlplane.state.processes["kube-apiserver"]
        controlplane.restart("kube-apiserver", sig)
        assert controlplane.state.processes["kube-apiserver"] != before
        controlplane.kubectl("get", "namespace", namespace)
    assert all(controlplane.running().values())


@pytest.mark.usefixtures("own_cache")
def test_audit_tells_who_asked_for_what() -> None:
    cluster = core.up("audited", audit=True)
    namespace = cluster.new_namespace()
    requests = [r for r in cluster.audit() if r.get("objectRef", {}).get("name") == namespace and r["verb"] == "patch"]
    assert [(r["user"]["username"], r["responseStatus"]["code"]) for r in requests] == [("cluster-admin", 201)]


@pytest.mark.usefixtures("own_cache")
def test_clusters_run_side_by_side() -> None:
    first, second = core.up("first"), core.up("second")
    assert first.server != second.server
    namespace = first.new_namespace()
    assert second.kubectl("get", "namespace", namespace, check=False).returncode != 0
    first.down()
    assert all(second.running().values())


@pytest.mark.usefixtures("own_cache")
def test_up_of_a_running_cluster_changes_nothing() -> None:
    before = core.up("same").state
    assert core.up("same").state == before


@pytest.mark.usefixtures("own_cache")
def test_up_with_another_profile_says_what_runs() -> None:
    core.up("same")
    with pytest.raises(ClusterError, match="runs with profile controlplane"):
        core.up("same", Profile.FAKE_NODES)


def test_down_leaves_no_process_and_no_file(own_cache: Path) -> None:
    cluster = core.up("gone")
    identity = cluster.state.identity
    assert len(with_identity(identity)) == len(COMPONENTS)
    cluster.down()
    assert with_identity(identity) == []
    assert list((own_cache / "clusters").iterdir()) == []
    cluster.down()  # again: nothing to do


@pytest.mark.usefixtures("own_cache")
def test_down_finds_processes_that_were_never_written_down() -> None:
    state = core.up("forgetful").state
    state.processes.clear()
    state.save()
    lifecycle.down("forgetful")
    assert with_identity(state.identity) == []


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("components", [1, 3])
def test_down_after_the_starter_was_killed(components: int) -> None:
    starter = cli("up", "--name", "orphan")
    wait_until(started("orphan", components))
    starter.kill()
    finish(starter)
    state = load("orphan")
    assert state is not None
    assert not state.ready
    assert with_identity(state.identity)
    assert finish(cli("down", "--name", "orphan"))[0] == 0
    assert with_identity(state.identity) == []


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_start_removes_what_it_made(sig: signal.Signals) -> None:
    starter = cli("up", "--name", "interrupted")
    wait_until(started("interrupted", 2))
    os.kill(starter.pid, sig)
    code, output = finish(starter)
    assert code == 1
    assert "interrupted; what had been started has been removed" in output
    state = load("interrupted")
    assert state is not None  # with its logs
    assert with_identity(state.identity) == []


@pytest.mark.usefixtures("own_cache")
def test_clusters_of_a_dead_test_session_are_removed_by_the_next_start() -> None:
    code = "from cluster import core; core.up('session', owned=True)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    state = load("session")
    assert state is not None
    assert with_identity(state.identity)
    core.up("next")
    assert [s.name for s in all_states()] == ["next"]
    assert with_identity(state.identity) == []


@pytest.mark.usefixtures("own_cache")
def test_down_all_removes_every_cluster() -> None:
    states = [core.up(name).state for name in ("one", "two")]
    code, output = finish(cli("down", "--all"))
    assert code == 0, output
    assert all_states() == []
    assert [with_identity(state.identity) for state in states] == [[], []]


@pytest.mark.usefixtures("own_cache")
def test_dead_component_is_reported_with_the_end_of_its_log() -> None:
    cluster = core.up("ill")
    with cluster.log("kube-scheduler").open("a") as log:
        log.write("the last words of the scheduler\n")
    cluster.kill("kube-scheduler")
    assert cluster.running()["kube-scheduler"] is False
    for command in ("status", "up"):
        code, output = finish(cli(command, "--name", "ill"))
        assert code == 1
        assert "kube-scheduler" in output
        assert "the last words of the scheduler" in output
    cluster.start("kube-scheduler")
    assert all(cluster.running().values())


@pytest.mark.usefixtures("own_cache")
def test_start_that_fails_shows_why_and_removes_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = {"etcd": 1, "etcd-peer": 1, "kube-apiserver": 1} | dict.fromkeys(["etcd"], other.getsockname()[1])
        monkeypatch.setattr(controlplane, "choose_ports", lambda _: ports)
        with pytest.raises(ClusterError, match=r"(?s)etcd has ended.*address already in use"):
            core.up("refused")
    state = load("refused")
    assert state is not None
    assert with_identity(state.identity) == []


@pytest.mark.usefixtures("own_cache")
def test_a_reused_process_number_is_not_taken_for_the_component() -> None:
    myself = processes.this_process()
    assert processes.alive(myself)
    assert not processes.alive(replace(myself, started_ticks=myself.started_ticks - 1))
    assert not processes.alive(replace(myself, boot="another"))


@pytest.mark.parametrize("jump", [-3600.0, -2.5, 3.0, 3600.0])
def test_a_component_is_the_same_one_after_the_clock_was_set(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    myself = processes.this_process()
    at, clock = psutil.boot_time(), time.time
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: at + jump)
    monkeypatch.setattr(time, "time", lambda: clock() + jump)
    assert processes.this_process() == myself
    assert processes.alive(myself)


def test_ended_process_differs_from_one_with_a_strange_name() -> None:
    with subprocess.Popen(["bash", "-c", "exec -a ') R 1 (x' sleep 60"]) as child:
        started = processes.process_id(child.pid)
        assert processes.alive(started)
        child.kill()
        child.wait()
        assert not processes.alive(started)


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "-a", "a" * 31])
def test_bad_cluster_name_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="cluster name"):
        core.up(name)


def test_state_of_another_version_can_be_removed(own_cache: Path) -> None:
    state = State("old", Profile.CONTROLPLANE)
    state.components["etcd"] = Component("etcd", ["etcd"])
    state.save()
    path = own_cache / "clusters" / "old" / STATE_FILE
    raw = json.loads(path.read_text())
    raw["from_the_future"] = 1
    del raw["owner"]
    path.write_text(json.dumps(raw))
    assert lifecycle.down("old")
    assert not path.parent.exists()


def test_fake_nodes_run_pods_until_the_gpus_are_taken(fake_nodes_cluster: core.Cluster) -> None:
    cluster = fake_nodes_cluster
    namespace = cluster.new_namespace()
    # Nodes of a product of their own: other tests use the cluster too.
    cluster.add_fake_nodes(2, prefix="counted", product="COUNTED", gpus=8)
    cluster.apply(statefulset(replicas=5, gpus=4, product="COUNTED"), namespace=namespace)  # 5 * 4 of 2 * 8 GPUs

    def phases() -> list[str]:
        return sorted(pod["status"]["phase"] for pod in cluster.get("pods", "--namespace", namespace)["items"])

    wait_until(lambda: phases() == ["Pending", *["Running"] * 4])
    events = cluster.kubectl("get", "events", "--namespace", namespace).stdout
    assert "Insufficient nvidia.com/gpu" in events
    cluster.add_fake_nodes(1, prefix="more", product="COUNTED", gpus=4)
    wait_until(lambda: phases() == ["Running"] * 5)


def test_fake_nodes_go_on_after_a_restart_of_kwok(fake_nodes_cluster: core.Cluster) -> None:
    cluster = fake_nodes_cluster
    cluster.restart("kwok", signal.SIGKILL)
    namespace = cluster.new_namespace()
    cluster.apply(statefulset(replicas=1, gpus=0), namespace=namespace)
    cluster.kubectl("--namespace", namespace, "rollout", "status", "statefulset/engine", "--timeout=30s")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> builds.Program:
    """A Go program of one line, with a cache of its own."""
    source = tmp_path / "source" / "go" / "tiny"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module example.com/tiny\n\ngo 1.26.0\n")
    (source / "main.go").write_text(MAIN_GO)
    monkeypatch.setattr(builds, "SOURCE", tmp_path / "source")
    monkeypatch.setenv("REASONINGPOOL_CACHE", str(tmp_path / "cache"))
    return builds.Program("tiny", ((".", "tiny"),))


def test_programs_are_built_once_for_each_source(tiny: builds.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    first = builds.ensure(tiny)
    assert subprocess.run([first / "tiny"], capture_output=True, check=True).stderr == b"one\n"

    def refuse(*_: object) -> None:
        pytest.fail("built again")

    with monkeypatch.context() as context:
        context.setattr(builds, "_build", refuse)
        assert builds.ensure(tiny) == first
    (tiny.source / "main.go").write_text(MAIN_GO.replace("one", "two"))
    second = builds.ensure(tiny)
    assert second != first
    assert subprocess.run([second / "tiny"], capture_output=True, check=True).stderr == b"two\n"


def test_build_that_fails_shows_the_compilers_words_and_leaves_no_file(tiny: builds.Program) -> None:
    (tiny.source / "main.go").write_text("package main\n\nfunc main() { undefinedThing() }\n")
    with pytest.raises(ClusterError, match="undefined: undefinedThing"):
        builds.ensure(tiny)
    assert list((builds.cache_root() / "bin").iterdir()) == []


def test_two_processes_do_not_build_at_once(tiny: builds.Program) -> None:
    code = (
        "import sys; from pathlib import Path; from cluster import builds; builds.SOURCE = Path(sys.argv[1]);"
        "print(builds.ensure(builds.Program('tiny', (('.', 'tiny'),))))"
    )
    command = [sys.executable, "-c", code, str(builds.SOURCE)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate() for process in both]
    assert len({out for out, _ in outputs}) == 1
    assert sum("building tiny" in error for _, error in outputs) == 1
