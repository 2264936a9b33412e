"""The node of the local cluster runs pods as a real node does, and vanishes without a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster import core, images, lifecycle, node, tools
from cluster.errors import ClusterError, UnsupportedError
from cluster.state import Profile, load

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(180)

IMAGE = "reasoningpool.local/host-python:1"
PYTHON = "/usr/bin/python3"
RESTRICTED: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
SERVER = """
import http.server, signal, sys, time
def leave(*_):
    print("asked to leave", flush=True); time.sleep(1); print("left", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello from a pod")
    def log_message(self, *_):
        pass
print("serving", flush=True)
http.server.HTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
"""


@pytest.fixture(scope="module")
def python(node_cluster: core.Cluster) -> core.Cluster:
    """The node with an image whose programs are the host's own /usr."""
    if not Path(PYTHON).exists():
        pytest.skip(f"pods of this test run the host's {PYTHON}, which is not there")
    node_cluster.import_scratch_image(IMAGE, symlinks=images.USR_LINKS, env={"PATH": "/usr/bin"})
    node_cluster.mount_host_paths(IMAGE, {"/usr": "/usr"})
    return node_cluster


@pytest.fixture(scope="module")
def served(python: core.Cluster) -> tuple[core.Cluster, str]:
    """A namespace with a StatefulSet of two HTTP servers and its headless Service, both pods Ready."""
    namespace = python.new_namespace()
    labels = {"app": "web"}
    probe = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1}
    spec = {
        "serviceName": "web",
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container(SERVER) | {"readinessProbe": probe}]},
        },
    }
    ports = [{"port": 80, "targetPort": 8000}]
    python.apply(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"clusterIP": "None", "selector": labels},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "front"},
            "spec": {"selector": labels, "ports": ports},
        },
        namespace=namespace,
    )
    python.kubectl("--namespace", namespace, "rollout", "status", "statefulset/web", "--timeout=60s")
    return python, namespace


def container(code: str, **fields: Any) -> dict[str, Any]:
    """A container that runs Python code under the restricted security context."""
    return {
        "name": "main",
        "image": IMAGE,
        "command": [PYTHON, "-c", code],
        "securityContext": RESTRICTED,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}},
    } | fields


def pod(name: str, code: str, *, gpus: int = 0, **fields: Any) -> dict[str, Any]:
    main = container(code)
    if gpus:
        main["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
    spec = {"restartPolicy": "Never", "containers": [main]} | fields
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.1)


def output(cluster: core.Cluster, namespace: str, code: str, **fields: Any) -> str:
    """Run Python code to its end in a pod and give its log."""
    name = f"run-{abs(hash(code)):x}"[:20]
    cluster.apply(pod(name, code, **fields), namespace=namespace)
    wait_until(lambda: phase(cluster, namespace, name) in ("Succeeded", "Failed"))
    log = cluster.kubectl("--namespace", namespace, "logs", name).stdout
    assert phase(cluster, namespace, name) == "Succeeded", log
    return log


def phase(cluster: core.Cluster, namespace: str, name: str) -> str:
    return str(cluster.get("pod", name, "--namespace", namespace)["status"]["phase"])


def test_node_is_labelled_and_counts_gpus(node_cluster: core.Cluster) -> None:
    found = node_cluster.get("node", node.NAME)
    assert found["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert found["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert not found["spec"].get("taints")


def test_pod_runs_as_a_user_without_rights(python: core.Cluster) -> None:
    code = "import os; print(os.getuid(), open('/proc/self/status').read(), flush=True); os.mkdir('/tmp/x')"
    namespace = python.new_namespace()
    python.apply(pod("restricted", code), namespace=namespace)
    wait_until(lambda: phase(python, namespace, "restricted") == "Failed")  # the root file system is read-only
    log = python.kubectl("--namespace", namespace, "logs", "restricted").stdout
    assert "1000 Name:" in log
    assert "CapEff:\t0000000000000000" in log
    assert "Seccomp:\t2" in log  # filtered
    assert "NoNewPrivs:\t1" in log
    assert "Read-only file system: '/tmp/x'" in log


def test_host_paths_are_read_only_and_only_for_their_image(python: core.Cluster) -> None:
    namespace = python.new_namespace()
    python.apply(pod("ours", "print()"), namespace=namespace)
    other = pod("other", "print()")
    other["spec"]["containers"][0]["image"] = "another.local/image:1"
    python.apply(other, namespace=namespace)
    mounts = {
        name: python.get("pod", name, "--namespace", namespace)["spec"]["containers"][0]["volumeMounts"]
        for name in ("ours", "other")
    }
    assert [(m["mountPath"], m["readOnly"]) for m in mounts["ours"] if m["name"].startswith("host-")] == [
        ("/usr", True)
    ]
    assert not any(m["name"].startswith("host-") for m in mounts["other"])


def test_limits_reach_the_container(python: core.Cluster) -> None:
    v1, v2 = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
    code = f"import os; print(open('{v1}' if os.path.exists('{v1}') else '{v2}').read())"
    assert output(python, python.new_namespace(), code).strip() == str(128 * 2**20)


def test_pod_reaches_the_api_server_with_its_service_account(python: core.Cluster) -> None:
    code = """
import os, socket, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
headers = {"Authorization": "Bearer " + open(folder + "token").read()}
hosts = ["kubernetes.default.svc", os.environ["KUBERNETES_SERVICE_HOST"]]
for host in hosts:
    request = urllib.request.Request(f"https://{host}/apis", headers=headers)
    print(urllib.request.urlopen(request, context=context, timeout=10).status)
"""
    assert output(python, python.new_namespace(), code).split() == ["200", "200"]


def test_pod_resolves_services_and_names_of_statefulset_pods(served: tuple[core.Cluster, str]) -> None:
    cluster, namespace = served
    pods = {
        p["metadata"]["name"]: p["status"]["podIP"] for p in cluster.get("pods", "-lapp=web", "-n", namespace)["items"]
    }
    front = cluster.get("service", "front", "-n", namespace)["spec"]["clusterIP"]
    names = ["web-0.web", f"web-1.web.{namespace}.svc.cluster.local", "front"]
    code = f"""
import socket, time
def address(name):
    for _ in range(50):  # a Ready pod has its name a moment later
        try:
            return socket.gethostbyname(name)
        except socket.gaierror:
            time.sleep(0.2)
print(*[address(name) for name in {names!r}])
"""
    assert output(cluster, namespace, code).split() == [pods["web-0"], pods["web-1"], front]


def test_unknown_names_are_refused_at_once(served: tuple[core.Cluster, str]) -> None:
    cluster, namespace = served
    code = """
import socket, time
start = time.monotonic()
for name in ("absent.default.svc.cluster.local", "example.com"):
    try:
        print(socket.gethostbyname(name))
    except socket.gaierror:
        print("refused")
assert time.monotonic() - start < 3
"""
    assert output(cluster, namespace, code).split() == ["refused", "refused"]


def test_services_answer_from_pods_and_from_the_host(served: tuple[core.Cluster, str]) -> None:
    cluster, namespace = served
    code = "import urllib.request as r; print(r.urlopen('http://front', timeout=5).read().decode())"
    assert output(cluster, namespace, code) == "hello from a pod\n"
    addresses = [cluster.get("service", "front", "-n", namespace)["spec"]["clusterIP"]]
    addresses += [f"{p['status']['podIP']}:8000" for p in cluster.get("pods", "-lapp=web", "-n", namespace)["items"]]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for address in addresses:
        assert opener.open(f"http://{address}", timeout=5).read() == b"hello from a pod"


def test_a_service_reaches_the_pod_that_calls_it(python: core.Cluster) -> None:
    namespace = python.new_namespace()
    labels = {"app": "self"}
    python.apply(
        pod("self", SERVER) | {"metadata": {"name": "self", "labels": labels}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "mirror"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]},
        },
        namespace=namespace,
    )
    python.kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/self", "--timeout=60s")
    code = "import urllib.request as r; print(r.urlopen('http://mirror', timeout=5).read())"
    call = ["--namespace", namespace, "exec", "self", "--", PYTHON, "-c", code]
    wait_until(lambda: "hello" in python.kubectl(*call, check=False).stdout, 15)


def test_logs_and_exec(served: tuple[core.Cluster, str]) -> None:
    cluster, namespace = served
    assert cluster.kubectl("--namespace", namespace, "logs", "web-0").stdout == "serving\n"
    result = cluster.kubectl("--namespace", namespace, "exec", "web-1", "--", PYTHON, "-c", "print(6 * 7)")
    assert result.stdout == "42\n"
    refused = cluster.kubectl(
        "--namespace", namespace, "exec", "web-1", "--", PYTHON, "-c", "raise SystemExit(3)", check=False
    )
    assert refused.returncode == 3


def test_a_deleted_pod_ends_in_its_own_time(python: core.Cluster) -> None:
    namespace = python.new_namespace()
    python.apply(pod("patient", SERVER), namespace=namespace)
    python.kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/patient", "--timeout=60s")
    follow = subprocess.Popen(
        [python.environment()["PATH"].split(os.pathsep)[0] + "/kubectl", "-n", namespace, "logs", "-f", "patient"],
        env=os.environ | python.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    assert follow.stdout.readline() == "serving\n"
    python.kubectl("--namespace", namespace, "delete", "pod", "patient", "--wait=true")
    rest, _ = follow.communicate(timeout=30)
    # The kubelet may add this line of its own to a followed log when the container is gone before the stream is.
    said = [line for line in rest.splitlines() if not line.startswith("rpc error: code = NotFound")]
    assert said == ["asked to leave", "left"]


def test_gpus_are_counted(python: core.Cluster) -> None:
    namespace = python.new_namespace()
    python.apply(pod("six", SERVER, gpus=6), pod("three", SERVER, gpus=3), namespace=namespace)
    wait_until(lambda: sorted(phase(python, namespace, name) for name in ("six", "three")) == ["Pending", "Running"])
    running, waiting = sorted(("six", "three"), key=lambda name: phase(python, namespace, name) != "Running")
    wait_until(
        lambda: "Insufficient nvidia.com/gpu" in python.kubectl("-n", namespace, "describe", "pod", waiting).stdout
    )
    python.kubectl("--namespace", namespace, "delete", "pod", running, "--grace-period=1")
    wait_until(lambda: phase(python, namespace, waiting) == "Running")
    python.kubectl("--namespace", namespace, "delete", "pod", waiting, "--grace-period=1")


def test_gpus_and_pods_survive_a_restart_of_the_kubelet(served: tuple[core.Cluster, str]) -> None:
    cluster, namespace = served

    def starts() -> list[str]:
        return [
            p["status"]["containerStatuses"][0]["containerID"]
            for p in cluster.get("pods", "-lapp=web", "-n", namespace)["items"]
        ]

    before = starts()
    cluster.restart("kubelet", signal.SIGKILL)
    assert cluster.get("node", node.NAME)["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    output(cluster, namespace, "print('after the restart')")
    assert starts() == before


def test_pods_survive_a_restart_of_containerd_and_of_the_api_server(served: tuple[core.Cluster, str]) -> None:
    cluster, namespace = served
    for component in ("containerd", "kube-apiserver", "kube-proxy", "coredns"):
        cluster.restart(component, signal.SIGKILL)
    assert all(cluster.running().values())
    code = "import urllib.request as r; print(r.urlopen('http://front', timeout=5).read().decode()); 1"
    assert output(cluster, namespace, code) == "hello from a pod\n"


def test_image_of_a_missing_name_is_reported(python: core.Cluster) -> None:
    namespace = python.new_namespace()
    broken = pod("broken", "print()")
    broken["spec"]["containers"][0]["image"] = "reasoningpool.local/absent:1"
    python.apply(broken, namespace=namespace)

    def reason() -> str:
        statuses = python.get("pod", "broken", "--namespace", namespace)["status"].get("containerStatuses", [])
        return statuses[0]["state"].get("waiting", {}).get("reason", "") if statuses else ""

    wait_until(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"))


# Below, clusters that these tests start and end themselves.


@pytest.fixture
def host() -> Callable[[], dict[str, list[str]]]:
    """What the host shows of clusters: links, routes, packet filters, mounts, namespaces, groups, files, settings."""
    try:
        node.require()
        unpacked = tools.ensure()
    except UnsupportedError as reason:
        pytest.skip(str(reason))

    def listing(folder: str) -> list[str]:
        return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).exists() else ["(none)"]

    def snapshot() -> dict[str, list[str]]:
        groups = Path("/sys/fs/cgroup")
        settings = [
            "vm/overcommit_memory",
            "vm/panic_on_oom",
            "kernel/panic",
            "kernel/panic_on_oops",
            "net/ipv4/ip_forward",
        ]
        folders = [
            "/run",
            "/run/netns",
            "/run/containerd",
            "/var/lib",
            "/var/log",
            "/etc",
            "/opt",
            "/usr/libexec",
            "/var/lib/kubelet",
        ]
        rules = [unpacked.run(command, check=False).stdout for command in ("iptables-save", "ip6tables-save")]
        return {
            "links": sorted(link["ifname"] for link in json.loads(unpacked.run("ip", "-json", "link").stdout)),
            "routes": unpacked.run("ip", "route", "show", "table", "all").stdout.splitlines(),
            "rules": [line for text in rules for line in re.sub(r"#.*|\[\d+:\d+\]", "", text).splitlines()],
            "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
            "groups": sorted(str(p) for p in groups.glob("**/reasoningpool/*") if p.is_dir()),
            "files": [f"{folder}/{name}" for folder in folders for name in listing(folder)],
            "settings": [f"{name} {Path('/proc/sys', name).read_text()}" for name in settings],
        }

    return snapshot


def difference(before: dict[str, list[str]], after: dict[str, list[str]], *identities: str) -> dict[str, list[str]]:
    """The lines that were added (+) or removed (-), by kind; clusters that others start meanwhile do not count."""

    def counts(line: str) -> bool:
        other = re.search(r"\brp([0-9a-f]{10})\b|reasoningpool/([0-9a-f]+)", line)
        return not other or any(i.startswith(other[1] or other[2]) for i in identities)

    changed = {
        kind: [f"+ {x}" for x in after[kind] if x not in before[kind]]
        + [f"- {x}" for x in before[kind] if x not in after[kind]]
        for kind in before
    }
    return {kind: found for kind, lines in changed.items() if (found := [line for line in lines if counts(line)])}


def processes_of(identity: str) -> list[str]:
    """Processes that carry the cluster's identity, and all that live in its control group."""
    marked = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if identity.encode() in path.read_bytes():
                marked.append(path.parent.name)
        except OSError:
            continue
    for path in Path("/sys/fs/cgroup").glob(f"**/{identity}/**/cgroup.procs"):
        marked += path.read_text().split()
    return marked


def start_with_a_pod(name: str) -> core.Cluster:
    cluster = core.up(name, Profile.NODE)
    cluster.import_scratch_image(IMAGE, symlinks=images.USR_LINKS)
    cluster.mount_host_paths(IMAGE, {"/usr": "/usr"})
    cluster.apply(pod("server", SERVER, gpus=1), namespace="default")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/server", "--timeout=60s")
    return cluster


def test_two_nodes_side_by_side_and_nothing_left(host: Callable[[], dict[str, list[str]]]) -> None:
    before = host()
    names = [f"side-{os.getpid()}-{number}" for number in range(2)]
    try:
        clusters = [start_with_a_pod(name) for name in names]
        states = [cluster.state for cluster in clusters]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for cluster in clusters:
            address = cluster.get("pod", "server")["status"]["podIP"]
            assert opener.open(f"http://{address}:8000", timeout=5).read() == b"hello from a pod"
        assert {"links", "routes", "groups"} <= set(difference(before, host(), *(state.identity for state in states)))
        clusters[0].down()
        assert clusters[1].get("pod", "server")["status"]["phase"] == "Running"
    finally:
        for name in names:
            lifecycle.down(name)
    assert difference(before, host(), *(state.identity for state in states)) == {}
    assert [processes_of(state.identity) for state in states] == [[], []]
    assert not any(state.folder.exists() for state in states)


@pytest.mark.parametrize("components", [1, 4, 7])
def test_killed_starter_leaves_nothing_after_down(components: int, host: Callable[[], dict[str, list[str]]]) -> None:
    before = host()
    name = f"killed-{os.getpid()}"
    starter = subprocess.Popen(
        [sys.executable, "-m", "cluster", "up", "--profile", "node", "--name", name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: (state := load(name)) is not None and len(state.processes) >= components)
        starter.kill()
        starter.wait()
        state = load(name)
        assert state is not None
        assert processes_of(state.identity)
    finally:
        starter.kill()
        starter.wait()
        lifecycle.down(name)
    assert difference(before, host(), state.identity) == {}
    assert processes_of(state.identity) == []
    lifecycle.down(name)  # again: nothing to do


def test_node_without_its_holder_is_reported_and_removed(host: Callable[[], dict[str, list[str]]]) -> None:
    before = host()
    name = f"holder-{os.getpid()}"
    try:
        cluster = start_with_a_pod(name)
        identity = cluster.state.identity
        cluster.kill("node-holder")  # takes every process of the node with it
        wait_until(lambda: not cluster.running()["kubelet"])
        with pytest.raises(ClusterError, match="node-holder has ended"):
            core.up(name, Profile.NODE)
        with pytest.raises(ClusterError, match="cannot start 'node-holder'"):
            cluster.start("node-holder")
    finally:
        lifecycle.down(name)
    assert difference(before, host(), identity) == {}


def test_missing_root_rights_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UnsupportedError, match="needs root"):
        core.up("refused", Profile.NODE)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match="needs Linux"):
        core.up("refused", Profile.NODE)
