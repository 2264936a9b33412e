"""A thousand two-tier pools: how soon all StatefulSets are there, and what the operator costs at rest.

Control plane with fake nodes; the pools exist before the operator starts. Pods are really created and run by
the fake kubelet, so controllers, scheduler and API server take their share of the same cores.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from cluster import core
from cluster.state import Profile
from demo.stack import install_crd
from support.apiserver import ApiServer
from support.pools import TINY_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable

POOLS: Final = int(os.environ.get("BENCH_POOLS", "1000"))
CHANGES: Final = 100
IDLE_SECONDS: Final = 60.0
NODES: Final = 3  # of a thousand pods each
NAMESPACE: Final = "default"
SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
KINDS: Final = {
    "StatefulSet": SETS,
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
    "ReasoningPool": f"/apis/reasoningpool.io/v1alpha1/namespaces/{NAMESPACE}/reasoningpools",
}
# Next to nothing is requested, so that all pods fit on a few nodes.
OVERRIDES: Final = {
    "sharedMemory": "1Mi",
    "containers": [{"name": "engine", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}],
}


def pool(number: int) -> dict[str, Any]:
    """A pool of two tiers on the CPU accelerator."""

    def tier(name: str, workload: str, thinking: int) -> dict[str, Any]:
        efforts = [{"name": "only", "thinkingTokens": thinking, "answerTokens": 256}]
        return {
            "name": name,
            "workload": workload,
            "promptTokens": 1024,
            "replicas": 1,
            "efforts": efforts,
            "podOverrides": OVERRIDES,
        }

    return {
        "apiVersion": "reasoningpool.io/v1alpha1",
        "kind": "ReasoningPool",
        "metadata": {"name": f"pool{number}"},
        "spec": {
            "model": {"id": "example/tiny", "configJSON": TINY_CONFIG},
            "accelerator": {"product": "CPU"},
            "engine": {"image": "example.org/vllm-cpu:0.32.0", "kvCacheMemory": "64Mi"},
            "tiers": [tier("reasoning", "Reasoning", 1024), tier("chat", "Chat", 0)],
        },
    }


def main() -> None:
    """Prints the table."""
    cluster = core.up("bench", Profile.FAKE_NODES, owned=True)
    try:
        cluster.add_fake_nodes(NODES)
        install_crd(cluster)
        with ApiServer(cluster.kubeconfig) as api, tempfile.TemporaryDirectory() as folder:
            for number in range(POOLS):
                answer = api.try_create(NAMESPACE, pool(number), dry_run=False)
                assert answer.ok, answer.message
            _measure(cluster, api, Path(folder) / "operator.log")
    finally:
        cluster.down()


def _measure(cluster: core.Cluster, api: ApiServer, log: Path) -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", "reasoningpool.cli", "run", "--health-port", "-1", "--lease-namespace", NAMESPACE]
    with log.open("w") as output:
        operator = subprocess.Popen(
            command, env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}, stdout=output, stderr=output
        )
    process = psutil.Process(operator.pid)
    try:
        first = _until(lambda: _count(api, SETS) >= 1, started, 120)
        everything = _until(lambda: _count(api, SETS) >= 2 * POOLS, started, 600)
        rows = [
            ("first StatefulSet", f"{first:.1f} s"),
            (f"all {2 * POOLS} StatefulSets", f"{everything:.1f} s"),
            ("all children", f"{_until(lambda: _all_children(api), started, 900):.1f} s"),
            ("every status filled", f"{_until(lambda: _statuses(api) >= POOLS, started, 900):.1f} s"),
        ]
        ready = _until(lambda: _statuses(api, "Ready") >= POOLS, started, 1800)
        rows.append(("every pool Ready", f"{ready:.1f} s"))
        _quiet(api)
        rows.append(("memory (RSS)", f"{process.memory_info().rss / 2**20:.0f} MiB"))
        rows += _at_rest(api, process)
        rows += _changes(api)
        rows.append(("memory after the changes", f"{process.memory_info().rss / 2**20:.0f} MiB"))
    finally:
        operator.send_signal(signal.SIGTERM)
        operator.wait(30)
    rows.append(("API requests a pool, start to end", f"{_requests(log) / POOLS:.1f}"))
    print(f"| {POOLS} pools of two tiers, from the operator's start | |\n|---|---|")
    print("\n".join(f"| {name} | {value} |" for name, value in rows) + "\n")


def _until(condition: Callable[[], bool], started: float, seconds: float) -> float:
    """Seconds from `started` until the condition holds."""
    while not condition():
        if time.monotonic() - started > seconds:
            msg = f"not within {seconds:.0f} s of the operator's start"
            raise TimeoutError(msg)
        time.sleep(0.25)
    return time.monotonic() - started


def _count(api: ApiServer, path: str) -> int:
    """How many objects there are, without reading them all."""
    answer = api.request("GET", path, limit="1")
    return len(answer.body.get("items", ())) + int(answer.body.get("metadata", {}).get("remainingItemCount", 0))


def _all_children(api: ApiServer) -> bool:
    wanted = {"Service": 4 * POOLS, "PodDisruptionBudget": 2 * POOLS, "ServiceAccount": POOLS}
    return all(_count(api, KINDS[kind]) >= number for kind, number in wanted.items())


def _statuses(api: ApiServer, reason: str | None = None) -> int:
    time.sleep(1)  # a full list of a thousand pools is work for the server that is measured
    pools = api.request("GET", KINDS["ReasoningPool"]).body["items"]
    reasons = [pool.get("status", {}).get("reason") for pool in pools]
    return sum(found is not None and reason in {None, found} for found in reasons)


def _versions(api: ApiServer) -> dict[str, str]:
    return {
        f"{kind}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for kind, path in KINDS.items()
        for item in api.request("GET", path).body["items"]
    }


def _quiet(api: ApiServer) -> None:
    """Until nothing changes for ten seconds."""
    before = _versions(api)
    while True:
        time.sleep(10)
        now = _versions(api)
        if now == before:
            return
        before = now


def _at_rest(api: ApiServer, process: psutil.Process) -> list[tuple[str, str]]:
    before, used = _versions(api), sum(process.cpu_times()[:2])
    time.sleep(IDLE_SECONDS)
    after, cpu = _versions(api), sum(process.cpu_times()[:2]) - used
    changed = sum(after.get(name) != version for name, version in before.items())
    return [
        (f"objects written in {IDLE_SECONDS:.0f} s at rest (the Lease aside)", str(changed)),
        ("CPU at rest", f"{cpu / IDLE_SECONDS * 100:.1f} % of a core"),
    ]


def _changes(api: ApiServer) -> list[tuple[str, str]]:
    """From the answer to the user's change of one pool to the change of its StatefulSet."""
    times = []
    for number in range(CHANGES):
        name, limit = f"pool{number * POOLS // CHANGES}", 3 + number % 2
        tiers = pool(0)["spec"]["tiers"]
        tiers[0]["maxNumSeqs"] = limit
        patch = {"spec": {"tiers": tiers}}
        answer = api.request(
            "PATCH", f"{KINDS['ReasoningPool']}/{name}", patch, content_type="application/merge-patch+json"
        )
        assert answer.ok, answer.message
        started = time.monotonic()
        wanted = f"--max-num-seqs={limit}"
        while wanted not in json.dumps(api.request("GET", f"{SETS}/{name}-reasoning").body["spec"]["template"]):
            assert time.monotonic() - started < 60, f"{name} does not change"
            time.sleep(0.01)
        times.append(time.monotonic() - started)
    times.sort()
    return [
        ("change to StatefulSet, p50", f"{statistics.median(times):.3f} s"),
        ("change to StatefulSet, p99", f"{times[int(0.99 * len(times)) - 1]:.3f} s"),
        ("change to StatefulSet, most", f"{times[-1]:.3f} s"),
    ]


def _requests(log: Path) -> int:
    """The operator counts its requests and says so when it ends."""
    line = next(line for line in log.read_text().splitlines() if "API requests sent" in line)
    return sum(int(number) for number in re.findall(r": (\d+)", line.partition("API requests sent")[2]))
