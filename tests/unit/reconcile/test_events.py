"""Events for people: once for each thing, however often it is planned."""

from datetime import UTC, datetime

import pytest

from reasoningpool.adapters.errors import Conflict, Forbidden, NotFound
from reasoningpool.planning.actions import EventNote, EventType
from reasoningpool.reconcile import events as module
from reasoningpool.reconcile.events import Events
from unit.reconcile.builders import pool


class Kube:
    def __init__(self):
        self.created, self.patched = [], []
        self.answer = None

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def create(self, manifest, *, manager, priority):
        self.created.append(manifest)
        if self.answer is not None:
            raise self.answer

    async def merge(self, key, patch, *, manager, priority):
        self.patched.append((key.name, patch))
        if self.answer is not None:
            raise self.answer


def note(message="does not fit", reason="DoesNotFit", kind=EventType.WARNING):
    return EventNote(type=kind, reason=reason, message=message, action="Reconcile")


@pytest.fixture
def kube():
    return Kube()


@pytest.fixture
def events(kube):
    return Events(kube, instance="operator-1")


@pytest.mark.field_report("K17")
async def test_lasting_condition_is_one_event(kube, events):
    for _ in range(240):
        await events.send(pool(), (note(),))
    assert len(kube.created) == 1
    assert kube.patched == []


async def test_what_an_event_says(kube, events):
    await events.send(pool(), (note(),))
    (event,) = kube.created
    assert event["involvedObject"]["uid"] == "uid-p"
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "DoesNotFit", "does not fit")
    assert event["metadata"]["namespace"] == "llm"
    assert event["count"] == 1
    assert event["source"] == {"component": "reasoningpool"}


@pytest.mark.field_report("K17")
async def test_flapping_condition_counts_up_one_event_rarely(kube, events, monkeypatch):
    await events.send(pool(), (note(),))
    await events.send(pool(), ())
    await events.send(pool(), (note(),))
    assert (len(kube.created), kube.patched) == (1, [])
    monkeypatch.setattr(module, "_REPEAT_SECONDS", 0.0)
    await events.send(pool(), ())
    await events.send(pool(), (note(),))
    assert len(kube.created) == 1
    assert [patch["count"] for _, patch in kube.patched] == [2]


async def test_an_event_whose_hour_is_over_is_created_anew(kube, events, monkeypatch):
    monkeypatch.setattr(module, "_REPEAT_SECONDS", 0.0)
    await events.send(pool(), (note(),))
    await events.send(pool(), ())
    gone = NotFound("gone", status=404)

    async def merge(*_, **__):
        raise gone

    kube.merge = merge
    await events.send(pool(), (note(),))
    assert len(kube.created) == 2


async def test_a_restarted_operator_meets_its_own_event_and_stays_silent(kube, events):
    await events.send(pool(), (note(),))
    kube.answer = Conflict("exists", status=409, reason="AlreadyExists")
    again = Events(kube, instance="operator-2")
    await again.send(pool(), (note(),))
    await again.send(pool(), (note(),))
    assert len(kube.created) == 2
    assert kube.created[0]["metadata"]["name"] == kube.created[1]["metadata"]["name"]


async def test_an_event_that_cannot_be_sent_fails_nothing_and_is_not_repeated(kube, events, caplog):
    kube.answer = Forbidden('cannot create resource "events"', status=403)
    for _ in range(5):
        await events.send(pool(), (note(),))
    assert len(kube.created) == 1
    assert "cannot create" in caplog.text


async def test_memory_is_bounded_and_ends_with_the_pool(kube):
    events = Events(kube, instance="x", max_remembered=10)
    for index in range(50):
        await events.send(pool(), (note(f"message {index}"),))
    assert len(events._sent) == 10
    events.forget("uid-p")
    assert events._sent == {}
    assert events._latest == {}


async def test_long_messages_are_cut_to_what_an_event_may_hold(kube, events):
    await events.send(pool(), (note("x" * 5000),))
    assert len(kube.created[0]["message"]) <= 1024
