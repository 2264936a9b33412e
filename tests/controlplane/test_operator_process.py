"""`reasoningpool run` as a process: what it writes, what it leaves alone, and how it comes and goes."""

from __future__ import annotations

import random
import subprocess
import time

import pytest

from controlplane.operator_support import CHILDREN, Cluster, eventually, running
from reasoningpool.api import names
from support.pools import changed, chat_tier, pool, tier


@pytest.fixture
def cluster(crd_cluster, apiserver):
    return Cluster(apiserver, crd_cluster.new_namespace("operator"))


@pytest.fixture
def start(crd_cluster, cluster, tmp_path):
    """Starts operators on the test's namespace; `start()` answers a context manager."""

    def make(*flags, log="operator.log", **env):
        return running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / log, *flags, **env)

    return make


def two_tiers(name="p", **spec):
    return pool(name, tiers=[tier(replicas=2), chat_tier()], **spec)


def complete(cluster, name="p", sets=("reasoning", "chat")):
    """Whether every child of the pool is there and its status is of its generation."""
    found = cluster.get("ReasoningPool", name)
    return (
        found is not None
        and found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        and all(cluster.get(kind, f"{name}-{which}") for which in sets for kind in CHILDREN[1:])
    )


def at_rest(cluster, *kinds, seconds=60.0):
    """Versions once nothing has changed between two looks that are three seconds apart."""
    deadline = time.monotonic() + seconds
    before, since = cluster.versions(*kinds), time.monotonic()
    while time.monotonic() < deadline:
        now = cluster.versions(*kinds)
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 3:
            return now
        time.sleep(0.2)
    raise AssertionError(f"not at rest within {seconds:g} s")


def kubectl_apply(crd_cluster, cluster, body):
    import json

    crd_cluster.kubectl("apply", "-n", cluster.namespace, "-f", "-", input=json.dumps(body))


# -- writes --------------------------------------------------------------------------------------------------------


def test_ten_applies_of_the_same_file_and_idle_time_write_nothing(crd_cluster, cluster, start):
    import json

    with start() as operator:
        operator.wait_leading()
        kubectl_apply(crd_cluster, cluster, two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        before = at_rest(cluster)
        for _ in range(10):
            kubectl_apply(crd_cluster, cluster, two_tiers())
        assert at_rest(cluster) == before
        live = cluster.get("ReasoningPool", "p")
        assert set(live["metadata"].get("annotations", {})) == {"kubectl.kubernetes.io/last-applied-configuration"}
        assert "finalizers" not in live["metadata"]
        assert "labels" not in live["metadata"]
        ours = [entry for entry in live["metadata"]["managedFields"] if entry["manager"] == names.FIELD_MANAGER]
        assert [(entry["subresource"], set(entry["fieldsV1"])) for entry in ours] == [("status", {"f:status"})]
        body = json.dumps(two_tiers())
        difference = crd_cluster.kubectl("diff", "-n", cluster.namespace, "-f", "-", input=body, check=False)
        assert difference.returncode == 0, difference.stdout


def test_a_cycle_at_rest_is_one_read(cluster, start):
    with start("--resync-seconds", "0.5") as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        before = at_rest(cluster)
        time.sleep(3)  # several resyncs, in which nothing is to happen
        assert cluster.versions() == before
        operator.stop()
    (counts,) = [line["message"] for line in operator.lines() if "API requests sent" in line["message"]]
    sent = dict(part.rsplit(": ", 1) for part in counts.split("sent: ")[1].split(", "))
    assert int(sent["get ReasoningPool"]) > 5
    assert int(sent["apply StatefulSet"]) <= 6
    assert int(sent["apply Service"]) <= 6
    assert int(sent["apply-status ReasoningPool"]) <= 8


@pytest.mark.field_report("K17")
def test_steady_pool_posts_no_events(cluster, start):
    with start("--resync-seconds", "0.5") as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        at_rest(cluster)
        ours = [event for event in cluster.list("Event") if event["source"].get("component") == "reasoningpool"]
        assert 0 < len(ours) <= 8
        assert {event["count"] for event in ours} == {1}
        operator.stop()
    with start("--resync-seconds", "0.5", log="again.log") as again:  # nor does a restart repeat them
        again.wait_leading()
        at_rest(cluster)
        now = [event for event in cluster.list("Event") if event["source"].get("component") == "reasoningpool"]
        assert {event["metadata"]["name"] for event in now} == {event["metadata"]["name"] for event in ours}


@pytest.mark.field_report("K11")
def test_edit_right_after_creation_takes_effect(cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(replicas=2)]))
        time.sleep(0.02)  # the report's input: a change 20 ms after creation
        cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=3)]}})
        eventually(lambda: cluster.replicas("p-reasoning") == 3, "three replicas")
        at_rest(cluster)
        assert cluster.replicas("p-reasoning") == 3
        assert [item["metadata"]["name"] for item in cluster.list("StatefulSet")] == ["p-reasoning"]


def test_a_removed_tier_goes_and_the_other_stays(cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: len(cluster.pods()) == 3, "three pods")
        before = cluster.pods()
        cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=2)]}})
        eventually(
            lambda: (
                not any(
                    item["metadata"]["name"].startswith("p-chat") for kind in CHILDREN for item in cluster.list(kind)
                )
            ),
            "the chat tier to be gone",
        )
        eventually(lambda: cluster.pods() == {n: u for n, u in before.items() if "chat" not in n}, "its pod to go")


def test_a_change_reaches_the_stateful_set_quickly(cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(replicas=1)]))
        eventually(lambda: complete(cluster, sets=("reasoning",)), "the pool to be complete")
        at_rest(cluster)
        took = []
        for number in (2, 3, 2, 1, 2):
            started = time.monotonic()
            cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=number)]}})
            eventually(lambda number=number: cluster.replicas("p-reasoning") == number, f"{number} replicas")
            took.append(time.monotonic() - started)
            at_rest(cluster, "StatefulSet")
        assert sorted(took)[2] < 1.0, took  # 0.3 s by benchmark on a quiet machine


# -- coming and going ----------------------------------------------------------------------------------------------


def test_a_stop_is_clean_and_quick(cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        assert operator.stop() < 10
    assert not [line for line in operator.lines() if line["level"] == "error"]
    (lease,) = cluster.list("Lease")
    assert lease["spec"]["holderIdentity"] == ""


@pytest.mark.field_report("K02")
def test_pool_is_deleted_without_a_running_operator(cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        operator.stop()
    cluster.delete("ReasoningPool", "p")
    assert cluster.get("ReasoningPool", "p") is None
    eventually(lambda: not any(cluster.list(kind) for kind in (*CHILDREN[1:], "Pod")), "the children to go", 60)
    assert [item["metadata"]["name"] for item in cluster.list("ServiceAccount")] == ["default"]
    with start(log="again.log") as again:
        again.wait_leading()
        at_rest(cluster)
        assert not cluster.list("StatefulSet")


def test_a_pool_deleted_in_the_foreground_is_not_fought_for(cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        cluster.delete("ReasoningPool", "p", propagation="Foreground")
        eventually(lambda: cluster.get("ReasoningPool", "p") is None, "the pool to go", 60)
        eventually(lambda: not any(cluster.list(kind) for kind in CHILDREN[1:]), "the children to go", 60)
        at_rest(cluster)
        assert not cluster.list("StatefulSet")


def test_a_pool_made_again_under_its_name_gets_children_of_its_own(cluster, start):
    with start() as operator:
        operator.wait_leading()
        for _ in range(3):
            cluster.create_pool(two_tiers())
            eventually(lambda: cluster.get("StatefulSet", "p-chat"), "the chat tier")
            cluster.delete("ReasoningPool", "p")
        uid = cluster.create_pool(two_tiers())["metadata"]["uid"]

        def ours():
            sets = cluster.list("StatefulSet")
            owners = {owner["uid"] for item in sets for owner in item["metadata"]["ownerReferences"]}
            return len(sets) == 2 and owners == {uid} and complete(cluster)

        eventually(ours, "two sets of the last pool", 60)


def test_killed_at_random_moments_the_end_is_the_same_and_no_pod_restarts(cluster, start):
    dice = random.Random(7)
    cluster.create_pool(two_tiers("kept"))
    with start() as operator:
        operator.wait_leading()
        eventually(lambda: len(cluster.pods()) == 3, "three pods")
        kept = cluster.pods()
        operator.stop()
    for round_ in range(5):
        with start(f"--lease-name=round-{round_}", log=f"round-{round_}.log") as operator:
            operator.wait_leading()
            for index in range(4):
                cluster.create_pool(pool(f"r{round_}-{index}", tiers=[tier(replicas=1 + index % 3)]))
            if round_:
                cluster.patch("ReasoningPool", f"r{round_ - 1}-1", {"spec": {"tiers": [tier(replicas=3)]}})
                cluster.delete("ReasoningPool", f"r{round_ - 1}-2")
            time.sleep(dice.uniform(0.0, 1.5))  # the random moment
            operator.kill()
    with start("--lease-name=last", log="last.log") as operator:
        operator.wait_leading()
        expected = {"kept-reasoning": 2, "kept-chat": 1}
        for round_ in range(5):
            for index in range(4):
                if index == 2 and round_ < 4:
                    continue
                expected[f"r{round_}-{index}-reasoning"] = 3 if index == 1 and round_ < 4 else 1 + index % 3

        def numbers():
            return {item["metadata"]["name"]: item["spec"]["replicas"] for item in cluster.list("StatefulSet")}

        eventually(lambda: numbers() == expected, "the state without kills", 90)
        at_rest(cluster)
        assert numbers() == expected
        assert {name: uid for name, uid in cluster.pods().items() if name.startswith("kept")} == kept


def test_an_api_server_that_restarts_is_waited_for(crd_cluster, cluster, start):
    with start() as operator:
        operator.wait_leading()
        cluster.create_pool(two_tiers())
        eventually(lambda: len(cluster.pods()) == 3, "three pods")
        before = cluster.pods()
        for number in (3, 2):
            crd_cluster.restart("kube-apiserver")
            cluster.reconnect()
            cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=number), chat_tier()]}})
            eventually(lambda number=number: cluster.replicas("p-reasoning") == number, f"{number} replicas", 60)
        eventually(lambda: cluster.pods() == before, "the pods of before", 60)
        assert operator.process.poll() is None
        assert operator.health("/healthz") == (200, "ok\n")


# -- two replicas --------------------------------------------------------------------------------------------------


def holder(cluster):
    (lease,) = cluster.list("Lease") or [{"spec": {"holderIdentity": None}}]
    return lease["spec"]["holderIdentity"]


@pytest.mark.field_report("K07")
def test_second_operator_replica_takes_over_and_only_the_leader_writes(cluster, start):
    with start(log="one.log") as one, start(log="two.log") as two:
        first, second = (one, two) if _leads(one, two) else (two, one)
        second.wait_standby()
        cluster.create_pool(two_tiers())
        eventually(lambda: complete(cluster), "the pool to be complete")
        name = holder(cluster)
        killed = time.monotonic()
        first.kill()
        eventually(lambda: holder(cluster) not in {"", name}, "another holder", 30)
        took = time.monotonic() - killed
        assert 8 < took < 22  # 15 s from the last renewal, plus the retry period
        cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=3), chat_tier()]}})
        eventually(lambda: cluster.replicas("p-reasoning") == 3, "three replicas")
        (lease,) = cluster.list("Lease")
        assert lease["spec"]["leaseTransitions"] == 1
        assert "create" not in second.text().split("leading:")[0]


def _leads(one, two):
    return (
        eventually(
            lambda: [operator for operator in (one, two) if operator.health("/readyz")[1].startswith("leading")],
            "a leader",
            40,
        )[0]
        is one
    )


@pytest.mark.field_report("K07")
def test_stopped_leader_hands_over_at_once(cluster, start):
    with start(log="one.log") as one:
        one.wait_leading()
        with start(log="two.log") as two:
            two.wait_standby()
            name = holder(cluster)
            stopped = time.monotonic()
            one.stop()
            eventually(lambda: holder(cluster) not in {"", name}, "another holder", 10)
            assert time.monotonic() - stopped < 6
            two.wait_leading()


@pytest.mark.field_report("K07")
def test_frozen_leader_steps_down_when_it_wakes(cluster, start):
    import signal

    with start(log="one.log") as one:
        one.wait_leading()
        with start(log="two.log") as two:
            two.wait_standby()
            name = holder(cluster)
            one.process.send_signal(signal.SIGSTOP)
            eventually(lambda: holder(cluster) not in {"", name}, "another holder", 30)
            one.process.send_signal(signal.SIGCONT)
            assert one.process.wait(timeout=15) == 1
            assert "leadership lost" in one.text()
            two.wait_leading()


# -- what it needs and says ----------------------------------------------------------------------------------------


@pytest.mark.field_report("K05")
def test_peering_of_another_kopf_operator_is_ignored(crd_cluster, cluster, start):
    peering = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
        "spec": {
            "group": "kopf.dev",
            "scope": "Cluster",
            "names": {"kind": "ClusterKopfPeering", "plural": "clusterkopfpeerings", "singular": "clusterkopfpeering"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    other = {
        "apiVersion": "kopf.dev/v1",
        "kind": "ClusterKopfPeering",
        "metadata": {"name": "default"},
        "status": {"other": {"priority": 9999, "lifetime": 3600, "lastseen": "2099-01-01T00:00:00.000000"}},
    }
    crd_cluster.apply(peering)
    try:
        eventually(lambda: not crd_cluster.kubectl("get", "clusterkopfpeerings", check=False).returncode, "the CRD")
        crd_cluster.apply(other)
        with start() as operator:
            operator.wait_leading()
            cluster.create_pool(two_tiers())
            eventually(lambda: complete(cluster), "the pool to be complete")
    finally:
        crd_cluster.kubectl("delete", "crd", "clusterkopfpeerings.kopf.dev")


@pytest.mark.field_report("K18")
def test_invalid_spec_past_the_schema_is_reported_once_and_pods_stay(cluster, start):
    with start("--resync-seconds", "0.5") as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(replicas=1)]))
        eventually(lambda: len(cluster.pods()) == 1, "a pod")
        before = cluster.pods()
        bad = changed(pool(tiers=[tier(replicas=2)]), "spec.model.id", "nobody/knows-this-model")
        cluster.patch("ReasoningPool", "p", {"spec": bad["spec"]})

        def refused():
            conditions = (cluster.get("ReasoningPool", "p").get("status") or {}).get("conditions", ())
            return [item for item in conditions if item["type"] == "Accepted" and item["status"] == "False"]

        (condition,) = eventually(refused, "Accepted to be False")
        assert "nobody/knows-this-model" in condition["message"]
        at_rest(cluster)
        assert cluster.pods() == before
        assert not [line for line in operator.lines() if line["level"] == "error"]


def test_the_permissions_of_the_manifests_are_enough_and_no_more(crd_cluster, cluster, start, tmp_path):
    import json

    import yaml

    system = crd_cluster.new_namespace("system")
    manifests = crd_cluster.kubectl("kustomize", "operator/deploy").stdout
    for document in yaml.safe_load_all(manifests):
        if document["kind"] in {"Namespace", "Deployment"}:
            continue
        if document["kind"] in {"ClusterRole", "ClusterRoleBinding"}:
            document["metadata"]["name"] = system
            document.get("roleRef", {})["name"] = system
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = system
        for subject in document.get("subjects", ()):
            subject["namespace"] = system
        crd_cluster.apply(document)
    account = "reasoningpool-operator"
    token = crd_cluster.kubectl("create", "token", account, "-n", system).stdout.strip()
    config = json.loads(crd_cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    limited = tmp_path / "limited.kubeconfig"
    limited.write_text(json.dumps(config))
    try:
        log = tmp_path / "limited.log"
        with running(limited, cluster.namespace, log, "--lease-namespace", system) as operator:
            operator.wait_leading()
            cluster.create_pool(two_tiers())
            eventually(lambda: complete(cluster), "the pool to be complete")
            cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=2)]}})
            eventually(lambda: cluster.get("StatefulSet", "p-chat") is None, "the tier to go")
            at_rest(cluster)
            assert operator.stop() < 10
        assert "forbidden" not in log.read_text().lower()
        for verb, resource in (
            ("get", "secrets"),
            ("list", "secrets"),
            ("patch", "reasoningpools"),
            ("create", "pods"),
        ):
            who = f"--as=system:serviceaccount:{system}:{account}"
            asked = crd_cluster.kubectl("auth", "can-i", verb, resource, who, "-n", cluster.namespace, check=False)
            assert asked.stdout.strip() == "no", f"{verb} {resource}"
    finally:
        crd_cluster.kubectl("delete", "clusterrole,clusterrolebinding", system)


def test_missing_permission_is_reported_in_log_and_readiness(crd_cluster, cluster, tmp_path):
    import json

    token = crd_cluster.kubectl("create", "token", "default", "-n", cluster.namespace).stdout.strip()
    config = json.loads(crd_cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    powerless = tmp_path / "powerless.kubeconfig"
    powerless.write_text(json.dumps(config))
    log = tmp_path / "powerless.log"
    with running(powerless, cluster.namespace, log, "--no-leader-election") as operator:
        _, text = eventually(
            lambda: (answer := operator.health("/readyz"))[0] == 503 and "cannot list" in answer[1] and answer,
            "not ready",
            40,
        )
        assert 'cannot list resource "serviceaccounts"' in text
        assert "cannot list" in operator.text()
        assert operator.health("/healthz")[0] == 200
        operator.stop()


def test_two_runs_without_a_cluster_say_what_to_do(tmp_path):
    import sys

    command = [sys.executable, "-m", "reasoningpool.cli", "run", "--kubeconfig", str(tmp_path / "absent")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "give --kubeconfig" in done.stderr
