"""URLs of kinds and objects."""

import pytest

from reasoningpool.adapters.paths import collection_path, group_path, object_path
from reasoningpool.objects import KINDS, Kind, ObjectKey
from reasoningpool.objects.kinds import UnknownKind


def test_core_and_group_paths():
    assert object_path(ObjectKey("v1", "Pod", "llm", "a-0")) == "/api/v1/namespaces/llm/pods/a-0"
    key = ObjectKey("reasoningpool.io/v1alpha1", "ReasoningPool", "llm", "a")
    assert object_path(key) == "/apis/reasoningpool.io/v1alpha1/namespaces/llm/reasoningpools/a"
    sets = KINDS.of(ObjectKey("apps/v1", "StatefulSet", "", ""))
    assert collection_path(sets, None) == "/apis/apps/v1/statefulsets"
    assert (group_path("v1"), group_path("apps/v1")) == ("/api/v1", "/apis/apps/v1")


def test_plurals_are_declared_and_never_guessed():
    key = ObjectKey("gateway.envoyproxy.io/v1alpha1", "EnvoyExtensionPolicy", "llm", "a")
    with pytest.raises(UnknownKind, match="EnvoyExtensionPolicy"):
        object_path(key)
    policy = Kind(api_version=key.api_version, kind=key.kind, plural="envoyextensionpolicies", grants=())
    assert object_path(key, KINDS.with_kinds(policy)).endswith("/namespaces/llm/envoyextensionpolicies/a")


def test_nothing_in_a_name_leaves_its_place_in_the_url():
    key = ObjectKey("v1", "Pod", "llm", "../../secrets/x?watch=1")
    assert object_path(key) == "/api/v1/namespaces/llm/pods/..%2F..%2Fsecrets%2Fx%3Fwatch%3D1"
