"""URLs of the kinds we know and of the kinds we shall know."""

import pytest

from reasoningpool.adapters.paths import collection_path, object_path, plural
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.types import OWNED_KINDS


@pytest.mark.parametrize(("api_version", "kind", "name"), OWNED_KINDS)
def test_plurals_agree_with_the_kinds_we_own(api_version, kind, name):
    assert plural(kind) == name
    assert collection_path(api_version, kind, None).endswith(name)


def test_core_and_group_paths():
    assert object_path(ObjectKey("v1", "Pod", "llm", "a-0")) == "/api/v1/namespaces/llm/pods/a-0"
    key = ObjectKey("reasoningpool.io/v1alpha1", "ReasoningPool", "llm", "a")
    assert object_path(key) == "/apis/reasoningpool.io/v1alpha1/namespaces/llm/reasoningpools/a"
    assert collection_path("apps/v1", "StatefulSet", None) == "/apis/apps/v1/statefulsets"


def test_nothing_in_a_name_leaves_its_place_in_the_url():
    key = ObjectKey("v1", "Pod", "llm", "../../secrets/x?watch=1")
    assert object_path(key) == "/api/v1/namespaces/llm/pods/..%2F..%2Fsecrets%2Fx%3Fwatch%3D1"
