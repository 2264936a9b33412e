"""What the watcher hands on, and how kopf is told to leave no trace."""

import pytest

from reasoningpool.objects import KINDS
from reasoningpool.process.handlers import Watcher, _Backoffs, _settings
from reasoningpool.reconcile.store import PoolName, Store
from unit.reconcile.builders import pod, pool, stateful_set

NAME = PoolName("llm", "p")


class Pools:
    def __init__(self):
        self.told = []

    def seen(self, body):
        self.told.append(("seen", body["metadata"]["uid"]))

    def gone(self, name, uid):
        self.told.append(("gone", name, uid))


@pytest.fixture
def pools():
    return Pools()


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def watcher(pools, store):
    return Watcher(None, store, pools, None, namespaces=None, silence=70.0, on_stop=None)


def test_pools_are_seen_whatever_the_event_and_gone_when_deleted(watcher, pools):
    for what in (None, "ADDED", "MODIFIED"):
        watcher.pool_event(what, pool())
    watcher.pool_event("DELETED", pool())
    assert pools.told == [("seen", "uid-p")] * 3 + [("gone", NAME, "uid-p")]


def test_children_and_pods_go_into_the_store_and_out_of_it(watcher, store):
    live, runner = stateful_set(), pod("p-a-0")
    watcher.child_event(None, live)
    watcher.child_event("ADDED", runner)
    assert store.count() == 2
    watcher.child_event("DELETED", runner)
    assert store.pods(NAME) == ()
    assert len(store.children(NAME)) == 1


@pytest.mark.field_report("K17")
def test_kopf_posts_no_events_and_scans_nothing():
    settings = _settings(70.0, KINDS)
    assert not settings.posting.enabled
    assert settings.scanning.disabled


@pytest.mark.field_report("K04", "K14")
def test_every_watch_has_a_server_and_a_client_timeout():
    settings = _settings(70.0, KINDS)
    assert isinstance(settings.watching.server_timeout, int)  # a float makes the API server answer 400
    assert settings.watching.server_timeout <= 600
    assert settings.watching.inactivity_timeout < 75
    assert settings.networking.request_timeout <= 60


def test_only_our_own_children_are_watched():
    selectors = _settings(70.0, KINDS).watching.label_selectors
    assert len(selectors) == len(KINDS.watched)
    assert set(selectors.values()) == {"app.kubernetes.io/managed-by=reasoningpool"}


@pytest.mark.field_report("K01", "K02")
def test_no_handler_needs_a_finalizer(watcher):
    watcher.register()
    registry = watcher._registry
    assert registry._watching.get_all_handlers()
    for kind in (registry._changing, registry._spawning, registry._webhooks, registry._indexing):
        assert list(kind.get_all_handlers()) == []


def test_an_api_server_that_is_away_for_long_is_waited_for():
    delays = [delay for delay, _ in zip(_Backoffs(), range(1000), strict=False)]
    assert len(delays) == 1000
    assert max(delays) == 10.0
