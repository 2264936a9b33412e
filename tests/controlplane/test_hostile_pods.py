"""Pods that say whatever they like, beside pools of others: those go on as if nothing were there."""

from __future__ import annotations

import threading
import time
import urllib.request

import pytest

from controlplane.operator_support import Cluster, eventually, running
from support.hostile import HUB, LAST_WORDS, PAGES, Engines, addresses, crashed, ready
from support.pools import pool, tier

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(crd_cluster, apiserver):
    return Cluster(apiserver, crd_cluster.new_namespace("hostile"))


@pytest.fixture
def engines():
    made = Engines()
    yield made
    made.close()


_JUDGED = {"MetricMissing", "MetricsUnreachable", "Verified", "KVPoolSmaller", "KVPoolTooSmall"}


class Health:
    """Asks the health port again and again, and keeps how long each answer took; a failure counts as infinite."""

    def __init__(self, operator) -> None:
        self.took: list[float] = []
        self._port = operator.health_port()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(30)

    def _run(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not self._ended.wait(0.05):
            started = time.monotonic()
            try:
                with opener.open(f"http://127.0.0.1:{self._port}/healthz", timeout=20) as answer:
                    alive = answer.status == 200
            except OSError:
                alive = False
            self.took.append(time.monotonic() - started if alive else float("inf"))


def set_status(cluster, name, status):
    path = cluster.path("Pod", name) + "/status"
    content = "application/merge-patch+json"
    answer = cluster.api.request("PATCH", path, {"status": status}, content_type=content)
    assert answer.ok, answer.message


def besiege(cluster, engines, pages, words) -> dict[str, str]:
    """A pool for each page and each last words, its pod in that state; the kind by pool."""
    kinds, address = {}, addresses()
    for number, kind in enumerate([*pages, *words]):
        kinds[f"h{number}"] = kind
        cluster.create_pool(pool(f"h{number}", tiers=[tier(replicas=1)]))
    for name, kind in kinds.items():
        eventually(lambda name=name: cluster.get("Pod", f"{name}-reasoning-0"), f"the pod of {name}")
        if kind in pages:
            at = next(address)
            engines.serve(at, *pages[kind])
            set_status(cluster, f"{name}-reasoning-0", ready(at))
        else:
            set_status(cluster, f"{name}-reasoning-0", crashed(words[kind]))
    return kinds


def reason(cluster, name, kind):
    status = (cluster.get("ReasoningPool", name) or {}).get("status") or {}
    return {entry["type"]: entry["reason"] for entry in status.get("conditions", ())}.get(kind)


def stray(cluster, name):
    """A pod that nobody owns, with the labels of somebody's pool."""
    labels = cluster.get("StatefulSet", "good0-reasoning")["spec"]["template"]["metadata"]["labels"]
    container = {"name": "engine", "image": "x"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
    answer = cluster.api.request("POST", cluster.path("Pod"), body | {"spec": {"containers": [container]}})
    assert answer.ok, answer.message


def siege(cluster, engines, operator, *, good, pages, words, rounds) -> list[float]:
    """Healthy pools are changed while all kinds are at work; seconds of each answer of the health port."""
    for number in range(good):
        cluster.create_pool(pool(f"good{number}", tiers=[tier(replicas=0)]))
    eventually(lambda: len(cluster.list("StatefulSet")) == good, "the healthy pools")
    with Health(operator) as health:
        kinds = besiege(cluster, engines, pages, words)
        stray(cluster, "good0-reasoning-999")
        for replicas in range(1, rounds + 1):
            for number in range(good):
                change = {"spec": {"tiers": [tier(replicas=replicas % 3)]}}
                cluster.patch("ReasoningPool", f"good{number}", change)
            for number in range(good):
                eventually(
                    lambda n=number, r=replicas % 3: cluster.replicas(f"good{n}-reasoning") == r, f"good{number}", 60
                )
        for name, kind in kinds.items():
            if kind in pages:
                eventually(lambda n=name: reason(cluster, n, "SizingVerified") in _JUDGED, f"a verdict on {kind}", 90)
            else:
                eventually(lambda n=name: reason(cluster, n, "Ready") not in {None, "Starting", "Creating"}, kind, 90)
    assert operator.process.poll() is None
    assert HUB not in operator.text()
    assert HUB not in str([item.get("status") for item in cluster.list("ReasoningPool")])
    assert HUB not in str([item["message"] for item in cluster.list("Event")])
    return health.took


# Each stopped the operator before, or was near it.
_FEW_PAGES = (
    "many labels on one line", "compressed page", "deflated page", "page that drips", "chunks of one byte",
    "headers without an end", "redirect to itself", "endless page", "many series",
)  # fmt: skip


def test_hostile_pods_stop_nobody(crd_cluster, cluster, engines, tmp_path):
    pages = {kind: PAGES[kind] for kind in _FEW_PAGES}
    with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "operator.log") as operator:
        operator.wait_leading()
        took = siege(cluster, engines, operator, good=3, pages=pages, words=LAST_WORDS, rounds=2)
        # The bound of the liveness probe; the soak test asks for a second.
        assert max(took) < 5


@pytest.mark.soak
def test_every_kind_of_hostile_pod_beside_fifty_healthy_pools(crd_cluster, cluster, engines, tmp_path):
    with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "operator.log") as operator:
        operator.wait_leading()
        took = siege(cluster, engines, operator, good=50, pages=PAGES, words=LAST_WORDS, rounds=20)
        print(f"health: {len(took)} answers, slowest {max(took):.3f} s")
        assert max(took) < 1
