"""What is known of the cluster, whatever order it is told in."""

import pytest

from reasoningpool.api import names
from reasoningpool.objects import ObjectKey
from reasoningpool.reconcile.shape import digest, shape
from reasoningpool.reconcile.store import PoolName, Store
from unit.reconcile.builders import meta, pod, stateful_set

POOL = PoolName("llm", "p")


@pytest.fixture
def told():
    return []


@pytest.fixture
def store(told):
    return Store(lambda pool, kind: told.append((pool, kind)))


def test_objects_come_back_whole_but_for_managed_fields(store):
    live = stateful_set(replicas=2, managedFields=[{"manager": "x"}])
    store.upsert(live)
    (child,) = store.children(POOL)
    assert child["spec"] == live["spec"]
    assert "managedFields" not in child["metadata"]
    assert child["metadata"]["uid"] == "uid-p-a"


def test_pods_and_children_are_kept_apart(store):
    store.upsert(stateful_set())
    store.upsert(pod("p-a-0"))
    assert [child["kind"] for child in store.children(POOL)] == ["StatefulSet"]
    assert [item["metadata"]["name"] for item in store.pods(POOL)] == ["p-a-0"]


def test_only_news_wakes_the_pool(store, told):
    live = stateful_set()
    assert store.upsert(live)
    assert not store.upsert(live)
    assert not store.upsert({**live, "metadata": {**live["metadata"], "resourceVersion": "1"}})
    assert told == [(POOL, "StatefulSet")]


def test_own_apply_does_not_wake_the_pool(store, told):
    live = stateful_set()
    store.upsert(live, notify=False)
    store.upsert(live)
    assert told == []


def test_a_late_event_of_a_deleted_object_does_not_bring_it_back(store):
    live = stateful_set()
    store.upsert(live)
    key = ObjectKey.of(live)
    assert store.remove(POOL, key, live["metadata"]["uid"])
    assert not store.upsert({**live, "metadata": {**live["metadata"], "resourceVersion": "999999"}})
    assert store.children(POOL) == ()


def labelled(live, version, **labels):
    meta = {**live["metadata"], "resourceVersion": str(version)}
    return {**live, "metadata": {**meta, "labels": {**meta["labels"], **labels}}}


def without_pool(live, version):
    found = labelled(live, version)
    del found["metadata"]["labels"][names.LABEL_POOL]
    return found


def test_what_a_watch_calls_deleted_is_believed_again_when_something_newer_proves_it(store):
    """A watch with a selector reports an object as deleted that has only lost its labels."""
    live = stateful_set(version=10)
    store.upsert(live)
    store.remove(POOL, ObjectKey.of(live), live["metadata"]["uid"], version=12)
    for late in (11, 12):
        assert not store.upsert(labelled(live, late))
    assert store.upsert(labelled(live, 13))
    assert len(store.children(POOL)) == 1
    assert not store.remove(POOL, ObjectKey.of(live), live["metadata"]["uid"], version=12), "told late"
    assert len(store.children(POOL)) == 1


def test_an_object_that_loses_its_pools_label_is_news_and_leaves_the_pool(store, told):
    live = stateful_set(version=10)
    store.upsert(live)
    told.clear()
    assert store.is_behind(without_pool(live, 11))
    assert store.upsert(without_pool(live, 11))
    assert store.children(POOL) == ()
    assert told == [(POOL, "StatefulSet")]
    assert not store.upsert(without_pool(live, 12))
    assert store.upsert(labelled(live, 13))


def test_an_object_that_gets_another_pools_label_changes_pools(store, told):
    live = stateful_set(version=10)
    store.upsert(live)
    told.clear()
    store.upsert(labelled(live, 11, **{names.LABEL_POOL: "q"}))
    other = PoolName("llm", "q")
    assert (store.children(POOL), len(store.children(other))) == ((), 1)
    assert told == [(POOL, "StatefulSet"), (other, "StatefulSet")]


@pytest.mark.parametrize("lost", [without_pool, labelled])
def test_an_object_without_its_labels_that_was_read_can_be_taken_in_as_a_pools(store, lost):
    before = stateful_set(version=10)
    live = lost(before, 11)
    store.remove(POOL, ObjectKey.of(live), live["metadata"]["uid"], version=11)
    assert not store.upsert(live)
    assert not store.upsert(before, pool=POOL)
    assert store.upsert(live, pool=POOL)
    assert not store.upsert(live), "the same event again"
    assert store.record(POOL, ObjectKey.of(live)).version == 11


def test_what_is_gone_for_good_does_not_come_back_by_a_late_read(store):
    live = stateful_set(version=10)
    store.remove(POOL, ObjectKey.of(live), live["metadata"]["uid"])
    assert not store.upsert(labelled(live, 11), pool=POOL)


def test_a_deletion_of_the_old_object_leaves_the_new_one_of_its_name(store):
    old, new = stateful_set(uid="old"), stateful_set(uid="new")
    store.upsert(old)
    store.upsert(new)
    assert not store.remove(POOL, ObjectKey.of(old), "old")
    assert store.record(POOL, ObjectKey.of(new)).uid == "new"


def test_objects_without_a_pool_are_not_kept(store):
    meta = {"name": "x", "namespace": "llm", "uid": "u", "resourceVersion": "1"}
    assert not store.upsert({"apiVersion": "v1", "kind": "Service", "metadata": meta})
    assert store.count() == 0


def test_a_status_write_leaves_the_shape_as_it_is():
    live = stateful_set(replicas=2)
    busy = {**live, "metadata": {**live["metadata"], "resourceVersion": "7"}, "status": {"readyReplicas": 1}}
    assert shape(live) == shape(busy)


def test_replicas_are_not_part_of_the_shape_but_everything_else_we_apply_is():
    live = stateful_set(replicas=2)
    assert shape(live) == shape(stateful_set(replicas=5))
    assert shape(live) != shape(stateful_set(replicas=2, image="v2"))
    relabelled = {**live, "metadata": {**live["metadata"], "labels": {}}}
    assert shape(live) != shape(relabelled)
    annotated = {**live, "metadata": meta("p-a", annotations={"a": "b"})}
    assert shape(live) != shape(annotated)


def test_a_digest_knows_no_order_of_keys():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]})


def test_copied_labels_make_no_child():
    store = Store()
    copied, given = stateful_set(), stateful_set("p-b", ownerReferences=[{"uid": "other", "controller": True}])
    own = stateful_set("p-c", ownerReferences=[{"uid": "uid-p", "controller": True}])
    for live in (copied, given, own):
        store.upsert(live)
    assert [child["metadata"]["name"] for child in store.children(POOL, "uid-p")] == ["p-c"]


def test_child_that_lost_its_controller_is_known_by_its_field_manager():
    store = Store()
    entry = {"manager": names.FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}
    store.upsert(stateful_set(managedFields=[entry]))
    assert len(store.children(POOL, "uid-p")) == 1
