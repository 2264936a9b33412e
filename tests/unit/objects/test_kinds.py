"""What follows from the table of kinds."""

from __future__ import annotations

import pytest

from reasoningpool.objects import KINDS, Kind, Kinds, ObjectKey
from reasoningpool.objects.kinds import OWN, UnknownKind

WIDGET = Kind(
    api_version="example.org/v1", kind="Widget", plural="widgets", rank=9, watched=True, installed_with="x", grants=OWN
)


def test_what_pods_need_is_applied_before_the_engines_and_everything_else_after():
    children = sorted((kind for kind in KINDS if kind.owned and not kind.optional), key=lambda kind: kind.rank or 0)
    urgent = [kind.kind for kind in children if kind.urgent]
    assert urgent == ["ServiceAccount", "ConfigMap", "StatefulSet"]
    assert [kind.kind for kind in children] == [*urgent, "Service", "PodDisruptionBudget"]


def test_what_is_not_urgent_comes_after_all_that_is():
    owned = [kind for kind in KINDS if kind.rank is not None]
    urgent = [kind.rank for kind in owned if kind.urgent]
    assert max(urgent) < min(kind.rank for kind in owned if not kind.urgent)


def test_children_and_pods_are_watched():
    assert {kind.kind for kind in KINDS.watched} == {kind.kind for kind in KINDS if kind.owned} | {"Pod"}


def test_what_is_watched_may_be_listed_and_what_is_owned_may_be_written():
    for kind in KINDS:
        verbs = {verb for grant in kind.grants if not grant.subresource for verb in grant.verbs}
        assert verbs >= ({"get", "list", "watch"} if kind.watched else set()), kind
        assert verbs >= ({"create", "patch", "delete"} if kind.owned else set()), kind


def test_nothing_that_a_cluster_may_lack_is_needed_by_an_engine():
    assert KINDS.with_kinds(WIDGET).optional == (*KINDS.optional, WIDGET)
    assert not any(kind.urgent or kind.shared for kind in KINDS.optional)


@pytest.mark.parametrize(
    "key", [ObjectKey("networking.k8s.io/v1", "Ingress", "llm", "a"), ObjectKey("v2", "Pod", "llm", "a")]
)
def test_undeclared_kinds_are_refused_by_name(key):
    with pytest.raises(UnknownKind, match=rf"{key.kind} \({key.api_version}\) is not declared"):
        KINDS.of(key)
    with pytest.raises(UnknownKind):
        KINDS.rank(key)


def test_kinds_that_are_never_applied_have_no_rank():
    with pytest.raises(ValueError, match=r"Pod \(v1\) is not a kind that the operator applies"):
        KINDS.rank(ObjectKey("v1", "Pod", "llm", "a"))


def test_declaring_a_kind_or_a_resource_twice_is_refused():
    again = Kind(api_version="example.org/v2", kind="Gadget", plural="widgets", grants=())
    for kinds in ([WIDGET, WIDGET], [WIDGET, again]):
        with pytest.raises(ValueError, match="twice"):
            Kinds(kinds)


def test_group_and_version():
    assert (WIDGET.group, WIDGET.version) == ("example.org", "v1")
    pod = KINDS.of(ObjectKey("v1", "Pod", "", ""))
    assert (pod.group, pod.version) == ("", "v1")
