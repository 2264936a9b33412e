"""How many pods wait for a StatefulSet to adopt them."""

from reasoningpool.reconcile.apply.stateful_sets import orphaned_replicas
from unit.reconcile.builders import pod, stateful_set


def test_the_highest_ordinal_without_a_controller_decides():
    pods = (pod("p-a-0"), pod("p-a-3"), pod("p-a-1", controller="other"))
    assert orphaned_replicas(stateful_set(), pods, 4) == 4


def test_stray_pod_far_above_the_others_asks_for_no_replicas():
    pods = (pod("p-a-0"), pod("p-a-949"))
    assert orphaned_replicas(stateful_set(), pods, 1) == 1
    assert orphaned_replicas(stateful_set(), pods[1:], 1) == 0


def test_pods_in_one_row_count_though_more_than_were_expected():
    pods = (pod("p-a-0"), pod("p-a-1"), pod("p-a-2"), pod("p-a-3"), pod("p-a-9"))
    assert orphaned_replicas(stateful_set(), pods, 1) == 4
    assert orphaned_replicas(stateful_set(), pods[1:], 1) == 4


def test_pods_that_have_a_controller_or_are_leaving_do_not_wait():
    pods = (pod("p-a-0", controller="s"), pod("p-a-1", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert orphaned_replicas(stateful_set(), pods, 9) == 0


def test_pods_of_other_names_do_not_count():
    assert orphaned_replicas(stateful_set(), (pod("p-a-x"), pod("p-ab-7"), pod("other-7")), 9) == 0


def test_ordinals_may_start_elsewhere():
    manifest = stateful_set()
    manifest["spec"]["ordinals"] = {"start": 5}
    assert orphaned_replicas(manifest, (pod("p-a-5"), pod("p-a-6")), 2) == 2
