"""The operator behind a network that lies, is slow, or forgets: a proxy stands between it and a real API server."""

from __future__ import annotations

import pytest

from controlplane.operator_support import Cluster, Faults, eventually, running
from support.pools import chat_tier, pool, tier

POOLS = "/apis/reasoningpool.io/v1alpha1/namespaces/{}/reasoningpools"
SETS = "/apis/apps/v1/namespaces/{}/statefulsets"


@pytest.fixture
def cluster(crd_cluster, apiserver):
    return Cluster(apiserver, crd_cluster.new_namespace("faults"))


@pytest.fixture
def faults(crd_cluster, tmp_path):
    proxy = Faults(crd_cluster.kubeconfig, tmp_path)
    yield proxy
    proxy.close()


@pytest.fixture
def operate(cluster, faults, tmp_path):
    """An operator behind the proxy that suspects a watch after two seconds of silence."""

    def start(*flags, **env):
        env = {"REASONINGPOOL_WATCH_SILENCE_SECONDS": "2"} | env
        return running(faults.kubeconfig, cluster.namespace, tmp_path / "operator.log", *flags, **env)

    return start


def scale_to(cluster, number):
    cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=number)]}})


def reaches(cluster, number, seconds=30.0):
    eventually(lambda: cluster.replicas("p-reasoning") == number, f"{number} replicas", seconds)


def one_tier():
    return pool(tiers=[tier(replicas=1)])


@pytest.mark.field_report("K04", "K14")
def test_silent_watch_is_reopened_and_the_change_is_seen(cluster, faults, operate):
    with operate() as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        faults.mute_watches = True
        scale_to(cluster, 2)
        opened = len(faults.watches)
        eventually(lambda: len(faults.watches) > opened, "a new watch")
        faults.mute_watches = False
        reaches(cluster, 2)


@pytest.mark.field_report("K04")
def test_silent_watches_fail_the_liveness_probe_by_name(cluster, faults, operate):
    with operate("--no-leader-election") as operator:  # else the lost Lease would end it first
        operator.wait_leading()
        assert operator.health("/healthz") == (200, "ok\n")
        namespace = cluster.namespace
        faults.delay = 3600.0  # not even a new stream is opened
        _, text = eventually(lambda: (answer := operator.health("/healthz"))[0] == 503 and answer, "not alive", 60)
        assert POOLS.format(namespace) in text
        faults.delay = 0.0


@pytest.mark.field_report("K04")
def test_resync_finds_a_change_that_no_watch_delivered(cluster, faults, operate):
    with operate("--resync-seconds", "3", REASONINGPOOL_WATCH_SILENCE_SECONDS="600") as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        faults.mute_watches = True
        scale_to(cluster, 2)
        reaches(cluster, 2)


@pytest.mark.field_report("K16")
def test_comparison_with_a_list_finds_an_undelivered_deletion(cluster, faults, operate):
    quick = {"REASONINGPOOL_WATCH_SILENCE_SECONDS": "600", "REASONINGPOOL_COMPARE_SECONDS": "2"}
    with operate("--resync-seconds", "600", **quick) as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        eventually(lambda: len(cluster.pods()) == 1, "a pod")
        service = eventually(lambda: cluster.get("Service", "p-reasoning"), "the Service")
        faults.mute_watches = True
        old = service["metadata"]["uid"]
        cluster.delete("Service", "p-reasoning")

        def made_again():
            found = cluster.get("Service", "p-reasoning")
            return found and found["metadata"]["uid"] != old

        eventually(made_again, "the Service to be made again", 40)
        eventually(lambda: "watches missed" in operator.text(), "the comparison to say so")


@pytest.mark.field_report("K16")
@pytest.mark.parametrize("kind", ["expire_watches", "refuse_watches"])
def test_410_inside_or_outside_a_stream_leads_to_a_new_list(cluster, faults, operate, kind):
    paths = {path.format(cluster.namespace) for path in (POOLS, SETS)}
    with operate() as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        faults.mute_watches = True
        getattr(faults, kind).update(paths)
        eventually(lambda: not getattr(faults, kind), "both watches to be answered with 410")
        faults.mute_watches = False
        scale_to(cluster, 2)
        reaches(cluster, 2)
        cluster.delete("StatefulSet", "p-reasoning")
        reaches(cluster, 2)
        assert operator.process.poll() is None


@pytest.mark.field_report("K16")
def test_child_deleted_during_a_watch_gap_is_recreated(cluster, faults, operate):
    with operate() as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        faults.mute_watches = True
        cluster.delete("StatefulSet", "p-reasoning")
        faults.expire_watches.add(SETS.format(cluster.namespace))
        eventually(lambda: not faults.expire_watches, "the watch to be answered with 410")
        faults.mute_watches = False
        reaches(cluster, 1)
        eventually(lambda: "watches missed" in operator.text(), "the comparison to say so")


@pytest.mark.field_report("K16")
def test_pool_deleted_during_a_watch_gap_leaves_no_task(cluster, faults, operate):
    with operate("--resync-seconds", "3") as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        faults.mute_watches = True
        faults.expire_watches.add(POOLS.format(cluster.namespace))
        cluster.delete("ReasoningPool", "p")
        eventually(lambda: not faults.expire_watches, "the watch to be answered with 410")
        faults.mute_watches = False
        eventually(lambda: operator.health("/readyz")[1].startswith("leading; 0 pools"), "no pool")


@pytest.mark.field_report("K14")
def test_unanswered_connections_time_out(cluster, faults, operate):
    with operate("--no-leader-election") as operator:
        operator.wait_leading()
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        faults.hold_connections()
        scale_to(cluster, 2)
        reaches(cluster, 2, 60)


@pytest.mark.field_report("K11")
def test_slow_api_server_does_not_change_the_result(cluster, faults, operate):
    faults.delay = 0.5
    with operate(REASONINGPOOL_WATCH_SILENCE_SECONDS="70") as operator:
        operator.wait_leading(60)
        cluster.create_pool(pool(tiers=[tier(replicas=2), chat_tier()]))
        cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=3), chat_tier()]}})
        reaches(cluster, 3, 60)
        eventually(lambda: cluster.get("PodDisruptionBudget", "p-chat"), "the last child", 60)
        names = sorted(item["metadata"]["name"] for item in cluster.list("StatefulSet"))
        assert names == ["p-chat", "p-reasoning"]


@pytest.mark.field_report("K18")
def test_retry_after_of_an_overloaded_api_server_is_respected(cluster, faults, operate):
    with operate() as operator:
        operator.wait_leading()
        faults.overload = 5
        cluster.create_pool(one_tier())
        reaches(cluster, 1)
        eventually(lambda: cluster.get("PodDisruptionBudget", "p-reasoning"), "the last child")
        assert faults.overload == 0


def test_at_rest_the_only_writes_are_of_the_lease(cluster, faults, operate):
    with operate("--resync-seconds", "1", REASONINGPOOL_COMPARE_SECONDS="2") as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(replicas=2), chat_tier()]))
        eventually(lambda: cluster.get("PodDisruptionBudget", "p-chat"), "the last child")
        eventually(lambda: len(cluster.pods()) == 3, "the pods")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases/reasoningpool-operator"

        def ten_leases_in_a_row():
            return len(faults.writes) > 8 and {path for _, path in faults.writes[-8:]} == {lease}

        eventually(ten_leases_in_a_row, "nothing but renewals of the Lease", 60)
