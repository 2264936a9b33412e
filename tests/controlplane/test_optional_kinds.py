"""A kind that not every cluster has: it comes, goes, is withheld, and the operator works all the while."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane import widget_operator
from controlplane.operator_support import Cluster, eventually, running
from controlplane.widget_operator import CRD, WIDGET
from support.pools import pool, tier
from support.rights import ACCOUNT, limited_kubeconfig

PROGRAM = (str(Path(widget_operator.__file__)),)
NOTICED_SECONDS = 60.0
GONE = "Widget (test.reasoningpool.io/v1) is no longer served"


@pytest.fixture
def cluster(crd_cluster, apiserver):
    return Cluster(apiserver, crd_cluster.new_namespace("optional"))


@pytest.fixture
def widgets(crd_cluster, cluster):
    """Installs and removes the kind; it is gone at the end."""

    class Widgets:
        def install(self):
            crd_cluster.apply(CRD)
            path = cluster.path("Widget")
            eventually(lambda: cluster.api.request("GET", path).ok, "the API server to serve Widgets")

        def remove(self):
            crd_cluster.kubectl("delete", "crd", CRD["metadata"]["name"], "--ignore-not-found")

    found = Widgets()
    found.remove()
    yield found
    found.remove()


def has_engines(cluster, replicas):
    return eventually(lambda: cluster.replicas("p-reasoning") == replicas, f"{replicas} replicas")


def scale(cluster, replicas):
    cluster.patch("ReasoningPool", "p", {"spec": {"tiers": [tier(replicas=replicas)]}})
    has_engines(cluster, replicas)


def test_an_optional_kind_is_noticed_when_it_comes_and_when_it_goes(crd_cluster, cluster, widgets, tmp_path):
    log = tmp_path / "operator.log"
    with running(crd_cluster.kubeconfig, cluster.namespace, log, program=PROGRAM) as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(replicas=1)]))
        has_engines(cluster, 1)
        assert "the plan sees Widgets NotInstalled" in operator.text()
        for round_ in (1, 2):
            widgets.install()
            eventually(lambda: cluster.get("Widget", "p"), "a Widget once they are served", NOTICED_SECONDS)
            _comes_back_when_deleted(cluster)
            widgets.remove()
            eventually(lambda round_=round_: operator.text().count(GONE) == round_, "the loss in the log")
            scale(cluster, round_ + 1)
            assert operator.process.poll() is None
        assert operator.health("/healthz") == (200, "ok\n")
        assert operator.health("/readyz")[0] == 200
        operator.stop()
    assert "reasoningpools.reasoningpool.io" not in operator.text()
    assert not [line for line in operator.lines() if line["level"] in {"error", "critical"}]


def _comes_back_when_deleted(cluster):
    """Twice: the first deletion may fall between list and watch, the second one only the watch can tell."""
    for _ in range(2):
        uid = cluster.get("Widget", "p")["metadata"]["uid"]
        cluster.delete("Widget", "p")
        again = eventually(lambda: cluster.get("Widget", "p"), "the Widget again", 20.0)
        assert again["metadata"]["uid"] != uid


def test_a_kind_that_is_there_from_the_start_is_watched(crd_cluster, cluster, widgets, tmp_path):
    widgets.install()
    with running(crd_cluster.kubeconfig, cluster.namespace, tmp_path / "log", program=PROGRAM) as operator:
        operator.wait_leading()
        cluster.create_pool(pool(tiers=[tier(replicas=1)]))
        eventually(lambda: cluster.get("Widget", "p"), "a Widget")
        assert "NotInstalled" not in operator.text()
        _comes_back_when_deleted(cluster)
        operator.stop()


def said(operator, text):
    """The log's messages with this text."""
    return [line["message"] for line in operator.lines() if text in line["message"]]


def grant(crd_cluster, namespace, system, *verbs):
    """Rights on Widgets in one namespace, in place of those granted before."""
    meta = {"name": f"widgets-{system}", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": meta["name"]}
    rule = {"apiGroups": [WIDGET.group], "resources": [WIDGET.plural], "verbs": list(verbs)}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": system}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta}
    crd_cluster.apply({**head, "kind": "Role", "rules": [rule]})
    crd_cluster.apply({**head, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})


def test_without_rights_on_an_optional_kind_the_rest_works_and_the_operator_says_so(
    crd_cluster, cluster, widgets, tmp_path
):
    widgets.install()
    kubeconfig, system = limited_kubeconfig(crd_cluster, tmp_path, only_in=cluster.namespace)
    flags = ("--lease-namespace", system)
    with running(kubeconfig, cluster.namespace, tmp_path / "log", *flags, program=PROGRAM) as operator:
        operator.wait_leading()
        assert "; may not read Widget (test.reasoningpool.io/v1)" in operator.health("/readyz")[1]
        (told,) = said(operator, 'cannot list resource "widgets"')
        assert "rbac.yaml" in told
        cluster.create_pool(pool(tiers=[tier(replicas=1)]))
        has_engines(cluster, 1)
        assert "the plan sees Widgets Forbidden" in operator.text()
        grant(crd_cluster, cluster.namespace, system, "get", "list")
        eventually(lambda: said(operator, 'cannot watch resource "widgets"'), "the missing verb", NOTICED_SECONDS)
        scale(cluster, 2)
        grant(crd_cluster, cluster.namespace, system, *WIDGET.grants[0].verbs)
        eventually(lambda: cluster.get("Widget", "p"), "a Widget once it is allowed", NOTICED_SECONDS)
        assert "may not read" not in operator.health("/readyz")[1]
        operator.stop()
