"""etcd, API server, controller manager and scheduler: their files, their flags and when they are ready."""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from cluster import builds, pki, processes
from cluster.paths import write_atomically
from cluster.state import Component, Place, State

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NODE_NAME = "gpu-node"
SERVICES = "10.96.0.0/16"  # of a cluster without a node: these addresses lead nowhere
NOWHERE = "198.51.100.1"  # the address that such a cluster advertises for its API server (reserved for documentation)
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
READY_SECONDS = 90.0
FIXED_PORTS = {"etcd": 2379, "etcd-peer": 2380, "kube-apiserver": 6443}
API_QPS = 300  # the default of 20 would be the limit of every scale test


def choose_ports(taken: Iterable[int]) -> dict[str, int]:
    """Free loopback ports for a cluster without a network namespace of its own."""
    used = set(taken)
    ports = {}
    for name in FIXED_PORTS:
        while (port := _free_port()) in used:
            pass
        used.add(port)
        ports[name] = port
    return ports


def write_files(state: State) -> None:
    """Certificates, tokens and kubeconfigs."""
    service = _first_address(services(state))
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    hosts = ["localhost", *names, "127.0.0.1", service, state.api_address]
    folder = state.folder / "pki"
    if state.network:
        pki.create(folder, hosts=hosts, node=NODE_NAME, node_hosts=[NODE_NAME, state.network.node])
    else:
        pki.create(folder, hosts=hosts)
    write_kubeconfig(state, pki.ADMIN, state.kubeconfig)
    for token in folder.glob("*.token"):
        if token.stem != pki.ADMIN:
            write_kubeconfig(state, token.stem, folder / f"{token.stem}.kubeconfig")


def write_kubeconfig(state: State, user: str, path: Path) -> None:
    """A kubeconfig that holds everything inline (JSON, which is YAML too)."""
    authority = base64.b64encode((state.folder / "pki" / "ca.crt").read_bytes()).decode()
    name = f"reasoningpool-{state.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": state.server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token(state, user)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    write_atomically(path, json.dumps(config, indent=2) + "\n")


def token(state: State, user: str) -> str:
    """The bearer token of a user of `pki.USERS`."""
    return (state.folder / "pki" / f"{user}.token").read_text()


def services(state: State) -> str:
    """The addresses of Services."""
    return state.network.services if state.network else SERVICES


def start(state: State) -> None:
    """Start the four components in order and wait until the API server answers and controllers work."""
    binary = str(builds.ensure(builds.KUBERNETES) / "kubernetes")
    place = Place.NETWORK if state.network else Place.HOST
    flags = {
        "etcd": _etcd(state),
        "kube-apiserver": _apiserver(state),
        "kube-controller-manager": _controller_manager(state),
        "kube-scheduler": _scheduler(state),
    }
    for name in COMPONENTS:
        processes.start(state, Component(name, [binary, name, *flags[name]], place))
        if name == "kube-apiserver":  # the other two would end when it does not answer within some seconds
            wait_ready(state)


def wait_ready(state: State, seconds: float = READY_SECONDS) -> None:
    """Wait until the API server says that it is ready."""
    processes.wait_for(state, "the API server is ready", lambda: answers(state, "/readyz"), seconds)


def wait_controllers(state: State, seconds: float = READY_SECONDS) -> None:
    """Wait until the controller manager has made what every pod needs: the service account and the CA's ConfigMap."""
    for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        condition = f"/api/v1/namespaces/default/{path}"
        processes.wait_for(state, f"{path} exists", lambda where=condition: answers(state, where), seconds)  # type: ignore[misc]


def answers(state: State, path: str) -> bool:
    """Whether the API server answers this path with success."""
    request = urllib.request.Request(state.server + path)
    request.add_header("Authorization", f"Bearer {token(state, pki.ADMIN)}")
    context = ssl.create_default_context(cafile=state.pki("ca.crt"))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _etcd(state: State) -> list[str]:
    client = f"http://127.0.0.1:{state.ports['etcd']}"
    peer = f"http://127.0.0.1:{state.ports['etcd-peer']}"
    return [
        "--name=default",
        f"--data-dir={state.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _apiserver(state: State) -> list[str]:
    flags = [
        f"--etcd-servers=http://127.0.0.1:{state.ports['etcd']}",
        f"--secure-port={state.ports['kube-apiserver']}",
        f"--bind-address={state.api_address}",
        f"--advertise-address={state.network.node if state.network else NOWHERE}",
        f"--service-cluster-ip-range={services(state)}",
        f"--cert-dir={state.folder / 'pki'}",
        f"--tls-cert-file={state.pki('apiserver.crt')}",
        f"--tls-private-key-file={state.pki('apiserver.key')}",
        f"--client-ca-file={state.pki('ca.crt')}",
        f"--token-auth-file={state.pki('tokens.csv')}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--shutdown-watch-termination-grace-period=1s",  # else SIGTERM waits a minute for open watches
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={state.pki('service-account.pub')}",
        f"--service-account-signing-key-file={state.pki('service-account.key')}",
        f"--requestheader-client-ca-file={state.pki('front-proxy-ca.crt')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={state.pki('front-proxy-client.crt')}",
        f"--proxy-client-key-file={state.pki('front-proxy-client.key')}",
    ]
    if state.audit:
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
        rules = {"rules": [{"level": "Metadata"}]}
        write_atomically(state.folder / "audit-policy.json", json.dumps(policy | rules))
        flags += [f"--audit-policy-file={state.folder / 'audit-policy.json'}", f"--audit-log-path={state.audit_log}"]
    if state.network:
        flags += [
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={state.pki('ca.crt')}",
            f"--kubelet-client-certificate={state.pki('apiserver-kubelet-client.crt')}",
            f"--kubelet-client-key={state.pki('apiserver-kubelet-client.key')}",
        ]
    return flags


def _controller_manager(state: State) -> list[str]:
    return [
        f"--kubeconfig={state.pki('kube-controller-manager.kubeconfig')}",
        f"--service-account-private-key-file={state.pki('service-account.key')}",
        f"--root-ca-file={state.pki('ca.crt')}",
        f"--cluster-signing-cert-file={state.pki('ca.crt')}",
        f"--cluster-signing-key-file={state.pki('ca.key')}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        f"--kube-api-qps={API_QPS}",
        f"--kube-api-burst={2 * API_QPS}",
        "--concurrent-statefulset-syncs=10",
    ]


def _scheduler(state: State) -> list[str]:
    return [
        f"--kubeconfig={state.pki('kube-scheduler.kubeconfig')}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--kube-api-qps={API_QPS}",
        f"--kube-api-burst={2 * API_QPS}",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_address(block: str) -> str:

    return str(next(ipaddress.ip_network(block).hosts()))
