"""The generated role: what the table of kinds needs, and nothing else."""

from __future__ import annotations

import yaml

from reasoningpool.objects import KINDS, Kind
from reasoningpool.objects.kinds import OWN
from reasoningpool.process.rbac import rbac_manifests

# Written out, so that a new right is seen in review.
_CLUSTER_ROLE = {
    "reasoningpool.io/reasoningpools": "get list watch",
    "reasoningpool.io/reasoningpools/status": "patch",
    "reasoningpool.io/reasoningpools/finalizers": "update",
    "/serviceaccounts": "get list watch create patch delete",
    "/configmaps": "get list watch create patch delete",
    "apps/statefulsets": "get list watch create patch delete",
    "/services": "get list watch create patch delete",
    "policy/poddisruptionbudgets": "get list watch create patch delete",
    "/pods": "get list watch patch delete",
    "/pods/log": "get",
    "/events": "create patch list",
}
_ROLE = {"coordination.k8s.io/leases": "get create update"}


def rights(text, role):
    (document,) = [document for document in yaml.safe_load_all(text) if document["kind"] == role]
    return {
        f"{group}/{resource}": " ".join(rule["verbs"])
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_operator_gets_these_rights_and_no_others():
    assert rights(rbac_manifests(), "ClusterRole") == _CLUSTER_ROLE
    assert rights(rbac_manifests(), "Role") == _ROLE


def test_bindings_lead_from_the_account_to_the_roles():
    documents = {document["kind"]: document for document in yaml.safe_load_all(rbac_manifests())}
    account = documents["ServiceAccount"]["metadata"]["name"]
    for role in ("Role", "ClusterRole"):
        binding = documents[f"{role}Binding"]
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": account}
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account, "reasoningpool-system")


def test_an_optional_kind_adds_one_rule_that_says_when_it_is_used():
    widget = Kind(
        api_version="example.org/v1", kind="Widget", plural="widgets", rank=9, installed_with="the workshop", grants=OWN
    )
    text = rbac_manifests(KINDS.with_kinds(widget))
    assert rights(text, "ClusterRole") == _CLUSTER_ROLE | {"example.org/widgets": "get list watch create patch delete"}
    assert "# Optional: used where the cluster has the workshop." in text
