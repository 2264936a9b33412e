"""A node that runs pods: containerd, kubelet and kube-proxy in namespaces of their own.

The first process of the node (the holder) keeps the namespaces. Nothing of the node is mounted or written in the
host's view except the cluster's folder, its control group and the host's end of the link, so that ending the holder
ends every process, mount, route and packet-filter entry of the node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import builds, cgroups, controlplane, dns, images, inside, kubectl, network, processes, tools
from cluster.errors import ClusterError, UnsupportedError
from cluster.kwok import GPU_LABEL, GPU_PRODUCT, GPU_RESOURCE, GPUS
from cluster.paths import SOURCE, cache_root, write_atomically
from cluster.state import Component, Place, State

if TYPE_CHECKING:
    from cluster.progress import Progress
    from cluster.tools import Tools

NAME = controlplane.NODE_NAME
SOCKET = "/run/containerd/containerd.sock"  # inside the node's own /run
READY_SECONDS = 90.0
_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--propagation=unchanged")


def require() -> None:
    """Raise `UnsupportedError` with the reason when this machine cannot run a node."""
    if not sys.platform.startswith("linux"):
        raise UnsupportedError(f"the node profile needs Linux, this is {sys.platform}; use --profile fake-nodes")
    if os.geteuid() != 0:
        raise UnsupportedError(
            "the node profile needs root (it makes namespaces, mounts and control groups); use --profile fake-nodes"
        )
    probe = subprocess.run(
        ["unshare", *_NAMESPACES, "--", "mount", "--make-rslave", "/"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise UnsupportedError(
            f"the node profile needs namespaces and mounts, which are refused here: {probe.stderr.strip()}"
        )
    if _in_chroot():
        raise UnsupportedError(
            "the node profile does not run in a chroot: `kubectl exec` would lead out of it; enter the folder with "
            "pivot_root in a mount namespace of its own instead"
        )


def _in_chroot() -> bool:
    """Whether `/` is not the root of the mount namespace, which is where joining the namespace leads."""
    command = ["nsenter", "--mount=/proc/self/ns/mnt", "--", "stat", "--format=%d:%i", "/"]
    true_root = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    root = Path("/").stat()
    return true_root != f"{root.st_dev}:{root.st_ino}"


def start_network(state: State) -> None:
    """Start the holder of the namespaces and link it to the host; before the control plane, which runs inside."""
    unpacked = tools.ensure()
    cgroups.create(state.identity)
    for folder in ("var/lib", "var/log", "var/tmp", "sysctl", "overlay/upper", "overlay/work", "cni"):
        (state.folder / folder).mkdir(parents=True, exist_ok=True)
    (state.folder / "var/tmp").chmod(0o1777)
    if not (state.folder / "var/run").is_symlink():
        (state.folder / "var/run").symlink_to("/run")
    pause = builds.ensure(builds.KUBERNETES) / "pause"
    address = state.network.node if state.network else ""
    write_atomically(state.folder / "resolv.conf", f"nameserver {address}\noptions ndots:1\n", mode=0o644)
    command = ["unshare", *_NAMESPACES, "--", "/bin/sh", str(SOURCE / "node_init.sh")]
    command += [str(state.folder), str(cache_root()), str(pause)]
    processes.start(state, Component(processes.HOLDER, command, forks=True))
    processes.wait_for(state, "the node's namespaces are set up", (state.folder / "node-ready").exists, 20)
    network.connect(state, unpacked)


def start(state: State, progress: Progress) -> None:
    """Start the node beside a control plane that is ready, and wait until pods can run on it."""
    unpacked = tools.ensure()
    _write_files(state, unpacked)
    environment = unpacked.environment()
    kubernetes = str(builds.ensure(builds.KUBERNETES) / "kubernetes")

    progress.update("container runtime and DNS", last=True)
    containerd = ["containerd", f"--config={state.folder / 'containerd.toml'}"]
    processes.start(state, Component("containerd", containerd, Place.NODE, environment))
    dns.start(state)
    processes.wait_for(
        state, "containerd answers", lambda: inside.run(state, "ctr", "version", check=False).returncode == 0, 30
    )
    images.import_pause(state)

    progress.update("kubelet and kube-proxy", last=True)
    processes.start(state, Component("kubelet", [kubernetes, "kubelet", *_kubelet(state)], Place.NODE, environment))
    processes.start(state, Component("kube-proxy", [kubernetes, "kube-proxy", *_proxy(state)], Place.NODE, environment))
    wait_ready(state)


def wait_ready(state: State) -> None:
    """Wait until the node is Ready, give it its GPUs (the kubelet takes them away when it starts) and its taints go."""
    processes.wait_for(state, "the node is Ready", lambda: _ready(state), READY_SECONDS, 0.25)
    values = [
        {"op": "add", "path": f"/status/{kind}/{GPU_RESOURCE.replace('/', '~1')}", "value": str(GPUS)}
        for kind in ("capacity", "allocatable")
    ]
    kubectl.run(
        state.kubeconfig, "patch", "node", NAME, "--subresource=status", "--type=json", "-p", json.dumps(values)
    )
    processes.wait_for(
        state, "the node has no taint", lambda: not _node(state)["spec"].get("taints"), READY_SECONDS, 0.25
    )


def stop(state: State) -> None:
    """Remove what the node leaves outside the cluster's folder once its processes have ended."""
    cgroups.remove(state.identity)
    if state.network:
        network.remove(state, tools.ensure())


def _node(state: State) -> dict[str, dict[str, list[dict[str, str]]]]:
    found: dict[str, dict[str, list[dict[str, str]]]] = json.loads(
        kubectl.run(state.kubeconfig, "get", "node", NAME, "-ojson").stdout
    )
    return found


def _ready(state: State) -> bool:
    if not controlplane.answers(state, f"/api/v1/nodes/{NAME}"):
        return False
    conditions = _node(state)["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _write_files(state: State, unpacked: Tools) -> None:
    if state.network is None:
        raise ClusterError(f"cluster {state.name} has no network")
    files = {
        "containerd.toml": _containerd(state, unpacked),
        "kubelet.json": json.dumps(_kubelet_configuration(state), indent=2),
        "cni/10-pods.conflist": json.dumps(_cni(state.network.pods), indent=2),
    }
    for name, content in files.items():
        write_atomically(state.folder / name, content, mode=0o644)


def _containerd(state: State, unpacked: Tools) -> str:
    snapshotter = (state.folder / "node-ready").read_text().strip()
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true # where CAP_SYS_RESOURCE is missing, every sandbox would fail
  disable_apparmor = true # a profile would be loaded into the host's kernel
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{unpacked.cni}"
  conf_dir = "{state.folder / "cni"}"
"""


def _cni(pods: str) -> dict[str, object]:
    """Point-to-point links instead of a bridge: no kernel setting of the host decides whether Services work."""
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
            }
        ],
    }


def _kubelet(state: State) -> list[str]:
    labels = f"{GPU_LABEL}={GPU_PRODUCT}"
    address = state.network.node if state.network else ""
    return [
        f"--config={state.folder / 'kubelet.json'}",
        f"--kubeconfig={state.pki('kubelet.kubeconfig')}",
        f"--hostname-override={NAME}",
        f"--node-ip={address}",
        f"--node-labels={labels}",
    ]


def _kubelet_configuration(state: State) -> dict[str, object]:
    address = state.network.node if state.network else ""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": state.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": state.pki("kubelet.crt"),
        "tlsPrivateKeyFile": state.pki("kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.name(state.identity),
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        # Neither pods nor images go because the host's disk is rather full.
        "evictionHard": {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "clusterDomain": "cluster.local",
        "clusterDNS": [address],
        "resolvConf": str(state.folder / "resolv.conf"),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "seccompDefault": True,
        "maxPods": 250,
    }


def _proxy(state: State) -> list[str]:
    return [
        f"--kubeconfig={state.pki('kube-proxy.kubeconfig')}",
        f"--hostname-override={NAME}",
        f"--cluster-cidr={state.network.pods if state.network else ''}",
        "--proxy-mode=iptables",
        # These settings are refused outside the first network namespace.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
