"""What the operator does about a kind that the cluster has, has not, or withholds."""

from __future__ import annotations

import logging

import pytest

from reasoningpool.adapters.errors import Forbidden, NotInstalled, Transient
from reasoningpool.adapters.kube import Page
from reasoningpool.objects import KINDS, Availability, Kind, ObjectKey
from reasoningpool.objects.kinds import OWN
from reasoningpool.reconcile.optional_kinds import OptionalKinds
from reasoningpool.reconcile.store import PoolName, Store
from unit.reconcile.builders import meta, stateful_set

WIDGET = Kind(
    api_version="example.org/v1", kind="Widget", plural="widgets", rank=9, watched=True, installed_with="x", grants=OWN
)
NAME = PoolName("llm", "p")


class Kube:
    """Serves Widgets, or raises what is put into `listing` and `watching`."""

    def __init__(self):
        self.served = {"gadgets"}
        self.discovery = self.listing = self.watching = None
        self.items = []

    async def resources(self, api_version):
        assert api_version == WIDGET.api_version
        if self.discovery is not None:
            raise self.discovery
        return frozenset(self.served)

    async def pages(self, kind, **_):
        if self.listing is not None:
            raise self.listing
        yield Page(list(self.items), "1")

    async def try_watch(self, kind, **_):
        if self.watching is not None:
            raise self.watching


class Watches:
    def __init__(self):
        self.calls = []
        self.refuse = None

    async def start(self, kind, *, on_refused):
        self.calls.append("start")
        self.refuse = on_refused

    async def stop(self, kind):
        self.calls.append("stop")


class Scene:
    def __init__(self):
        self.kube, self.watches, self.changes = Kube(), Watches(), 0
        self.store = Store(kinds=KINDS.with_kinds(WIDGET))
        self.optional = OptionalKinds(self.kube, self.store, self.watches, (None,), on_change=self._changed)

    def _changed(self):
        self.changes += 1

    @property
    def availability(self):
        return self.store.availability[WIDGET]

    async def look(self):
        """One look; the calls to the watches that it made."""
        self.watches.calls.clear()
        await self.optional.look()
        return self.watches.calls


@pytest.fixture
def scene():
    return Scene()


def widget():
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": meta("p")}


async def test_a_kind_that_is_not_served_changes_nothing(scene):
    assert await scene.look() == []
    assert (scene.availability, scene.changes) == (Availability.NOT_INSTALLED, 0)
    assert not scene.store.is_watched(ObjectKey.of(widget()))


async def test_a_kind_that_appears_is_listed_watched_and_reported_once(scene):
    scene.kube.served.add("widgets")
    scene.kube.items.append(widget())
    assert await scene.look() == ["start"]
    assert scene.store.children(NAME) == (widget() | {"metadata": scene.kube.items[0]["metadata"]},)
    assert scene.store.is_watched(ObjectKey.of(widget()))
    assert await scene.look() == []
    assert (scene.availability, scene.changes) == (Availability.AVAILABLE, 1)


async def test_objects_of_a_kind_that_disappears_are_gone_and_others_stay(scene):
    scene.store.upsert(stateful_set())
    scene.kube.served.add("widgets")
    scene.kube.items.append(widget())
    await scene.look()
    scene.kube.served.clear()
    assert await scene.look() == ["stop"]
    assert [child["kind"] for child in scene.store.children(NAME)] == ["StatefulSet"]
    assert (scene.availability, scene.changes) == (Availability.NOT_INSTALLED, 2)


@pytest.mark.parametrize("verb", ["listing", "watching"])
async def test_a_kind_without_rights_is_reported_once_until_they_are_granted(scene, verb, caplog):
    caplog.set_level(logging.INFO, "reasoningpool")
    scene.kube.served.add("widgets")
    setattr(scene.kube, verb, Forbidden(f"cannot do {verb} of widgets", status=403))
    assert await scene.look() == ["stop"]
    assert await scene.look() == []
    (told,) = caplog.messages
    assert f"cannot do {verb} of widgets; grant get, list and watch" in told
    assert (scene.availability, scene.optional.forbidden()) == (Availability.FORBIDDEN, (WIDGET,))
    setattr(scene.kube, verb, None)
    assert await scene.look() == ["start"]
    assert (scene.availability, scene.optional.forbidden()) == (Availability.AVAILABLE, ())


async def test_a_refused_watch_is_begun_anew_when_the_kind_is_there_after_all(scene):
    scene.kube.served.add("widgets")
    await scene.look()
    scene.watches.refuse()
    assert await scene.look() == ["stop", "start"]
    assert scene.changes == 1
    assert await scene.look() == []


async def test_a_refused_watch_ends_when_the_right_was_taken_away(scene):
    scene.kube.served.add("widgets")
    scene.kube.items.append(widget())
    await scene.look()
    scene.watches.refuse()
    scene.kube.listing = Forbidden("no", status=403)
    assert await scene.look() == ["stop"]
    assert scene.availability is Availability.FORBIDDEN
    assert scene.store.children(NAME)  # as last seen
    assert not scene.store.is_watched(ObjectKey.of(widget()))


async def test_a_kind_that_goes_between_discovery_and_list_is_not_installed(scene):
    scene.kube.served.add("widgets")
    scene.kube.listing = NotInstalled("gone", status=404)
    assert await scene.look() == []
    assert scene.availability is Availability.NOT_INSTALLED


async def test_a_kind_that_cannot_be_judged_stays_as_it_was(scene, caplog):
    scene.kube.served.add("widgets")
    await scene.look()
    scene.kube.discovery = Transient("the aggregated API does not answer", status=503)
    for _ in range(3):
        assert await scene.look() == []
    assert scene.availability is Availability.AVAILABLE
    (told,) = [message for message in caplog.messages if "aggregated" in message]
    assert told.startswith("could not find out whether the cluster serves Widget (example.org/v1)")
