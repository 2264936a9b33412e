"""The operator's end: it comes in time whatever does not want to stop, and a leader that was deposed writes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from controlplane.operator_support import Cluster, Faults, eventually, running
from demo.stack import install_crd
from reasoningpool.process.ending import END_SECONDS, EXIT_FORCED
from support.pools import pool, tier

POOLS = "/apis/reasoningpool.io/v1alpha1/namespaces/{}/reasoningpools"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/reasoningpools.reasoningpool.io"
GRACE_SECONDS = 30  # of the Deployment


@pytest.fixture
def cluster(crd_cluster, apiserver):
    return Cluster(apiserver, crd_cluster.new_namespace("ends"))


@pytest.fixture
def faults(crd_cluster, tmp_path):
    proxy = Faults(crd_cluster.kubeconfig, tmp_path)
    yield proxy
    proxy.close()


def one_tier(name="p"):
    return pool(name, tiers=[tier(replicas=1)])


def ended(operator, seconds=GRACE_SECONDS):
    """The exit code; fails when there is none in time."""
    try:
        return operator.process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"still there after {seconds} s: {operator.text()[-3000:]}") from None


@pytest.mark.parametrize("code", [403, 500])
def test_an_error_in_a_watch_ends_the_process_and_the_next_one_works(cluster, faults, tmp_path, code):
    flags = {"REASONINGPOOL_WATCH_SILENCE_SECONDS": "2"}
    with running(faults.kubeconfig, cluster.namespace, tmp_path / "one.log", **flags) as operator:
        operator.wait_leading()
        path = POOLS.format(cluster.namespace)
        faults.mute_watches = True
        faults.break_watches[path] = code
        eventually(lambda: not faults.break_watches, "the watch to be opened anew")
        faults.mute_watches = False
        assert ended(operator) == 1
        assert "watching ended, so the operator starts anew" in operator.text()
    cluster.create_pool(one_tier())
    with running(faults.kubeconfig, cluster.namespace, tmp_path / "two.log", **flags) as operator:
        operator.wait_leading()
        eventually(lambda: cluster.replicas("p-reasoning") == 1, "the StatefulSet")


def test_a_deleted_crd_ends_the_process_and_a_new_one_works_when_it_is_back(crd_cluster, cluster, apiserver, tmp_path):
    start = (crd_cluster.kubeconfig, cluster.namespace)
    try:
        with running(*start, tmp_path / "one.log") as operator:
            operator.wait_leading()
            cluster.create_pool(one_tier())
            eventually(lambda: cluster.replicas("p-reasoning") == 1, "the StatefulSet")
            assert apiserver.request("DELETE", CRD).ok
            eventually(lambda: not apiserver.request("GET", CRD).ok, "the CRD to be gone")
            assert ended(operator, 60) == 1
        with running(*start, tmp_path / "two.log") as operator:
            waits = "CustomResourceDefinition reasoningpools.reasoningpool.io is not installed"
            eventually(lambda: operator.health("/readyz") == (503, f"the {waits}\n"), "waiting for the CRD")
            assert operator.health("/healthz")[0] == 200
            install_crd(crd_cluster)
            operator.wait_leading()
            cluster.create_pool(one_tier("q"))
            eventually(lambda: cluster.replicas("q-reasoning") == 1, "the StatefulSet")
    finally:
        install_crd(crd_cluster)


def test_a_signal_ends_the_process_in_time_while_no_request_is_answered(cluster, faults, tmp_path):
    with running(faults.kubeconfig, cluster.namespace, tmp_path / "operator.log") as operator:
        operator.wait_leading()
        faults.delay = 3600.0
        operator.process.send_signal(signal.SIGTERM)
        ended(operator)


STUBBORN = """
import asyncio, contextlib, sys
from reasoningpool.process import handlers
async def run(self, stop):
    self._on_start()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
handlers.Watcher.run = run
if {blocked}:
    import time
    from reasoningpool.process.operator import Operator
    first = Operator._shut_down
    async def stuck(self):
        await first(self)
        time.sleep(3600)
    Operator._shut_down = stuck
from reasoningpool.cli import main
sys.argv = ["reasoningpool", *{arguments}]
main()
"""


@pytest.mark.parametrize("blocked", [False, True], ids=["watcher", "event loop"])
def test_a_signal_ends_the_process_in_time_whatever_does_not_stop(crd_cluster, cluster, tmp_path, blocked):
    arguments = ["run", "--kubeconfig", str(crd_cluster.kubeconfig), "--namespace", cluster.namespace]
    arguments += ["--lease-namespace", cluster.namespace, "--health-port", "-1"]
    log = tmp_path / "stubborn.log"
    with log.open("w") as output:
        script = STUBBORN.format(blocked=blocked, arguments=arguments)
        process = subprocess.Popen([sys.executable, "-c", script], stdout=output, stderr=output, env=dict(os.environ))
    try:
        eventually(lambda: "pools and" in log.read_text(), "the first list")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=GRACE_SECONDS) == EXIT_FORCED, log.read_text()[-2000:]
        assert f"within {END_SECONDS:g} s" in log.read_text()
    finally:
        process.kill()
        process.wait()


def test_a_leader_that_wakes_after_its_lease_writes_nothing(crd_cluster, cluster, faults, tmp_path):
    """Frozen amid a burst of writes, for longer than its Lease, with a successor at work."""
    with running(faults.kubeconfig, cluster.namespace, tmp_path / "one.log") as one:
        one.wait_leading()
        with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "two.log") as two:
            two.wait_standby()
            faults.write_delay = 0.2
            for number in range(20):
                cluster.create_pool(one_tier(f"p{number}"))
            eventually(lambda: len(faults.received) >= 10, "the first writes")
            one.process.send_signal(signal.SIGSTOP)
            faults.write_delay = 0.0
            two.wait_leading()
            before = len(faults.received)  # what was in sockets already has come in
            assert before < 100, "nothing was left to write"
            one.process.send_signal(signal.SIGCONT)
            assert ended(one) == 1
            assert faults.received[before:] == []
            done = eventually(
                lambda: len(cluster.list("PodDisruptionBudget")) == 20 and cluster.list("StatefulSet"), "all pools", 90
            )
            assert len(done) == 20
