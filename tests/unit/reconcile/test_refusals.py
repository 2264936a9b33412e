"""When events about missing pods are read, and which of them count."""

from datetime import UTC, datetime, timedelta

from reasoningpool.adapters.errors import Forbidden, Transient
from reasoningpool.planning.types import PodRefusal, RefusalsWanted
from reasoningpool.reconcile.observe.pod_creations import (
    AGAIN_SECONDS,
    FORBIDDEN_AGAIN_SECONDS,
    GRACE_SECONDS,
    Refusals,
)

WANTED = (RefusalsWanted(namespace="llm", stateful_set_uid="u"),)
START = datetime(2026, 1, 1, tzinfo=UTC)


class Kube:
    def __init__(self):
        self.asked, self.events, self.error = [], [], None

    async def warnings_about(self, namespace, uid, reason, *, limit):
        self.asked.append((namespace, uid, reason))
        if self.error is not None:
            raise self.error
        return self.events


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def wall(self):
        return START + timedelta(seconds=self.seconds)


def event(words, *, pod="p-0", at=0.0):
    text = f"create Pod {pod} in StatefulSet p failed error: {words}"
    return {"message": text, "lastTimestamp": (START + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")}


def reader():
    kube, clock = Kube(), Clock()
    return Refusals(kube, clock=clock.now, wall=clock.wall), kube, clock


async def test_nothing_is_read_while_pods_may_still_be_on_their_way():
    refusals, kube, clock = reader()
    assert refusals.due_in() == float("inf")
    assert await refusals.read(WANTED) is False
    assert refusals.due_in() == GRACE_SECONDS
    clock.seconds += GRACE_SECONDS - 1
    await refusals.read(WANTED)
    assert kube.asked == []
    await refusals.read(())
    assert refusals.due_in() == float("inf")


async def test_lasting_shortage_is_read_once_a_while_and_forgotten_when_it_ends():
    refusals, kube, clock = reader()
    kube.events = [event("no", at=1)]
    await refusals.read(WANTED)
    clock.seconds += GRACE_SECONDS
    assert await refusals.read(WANTED) is True
    assert await refusals.read(WANTED) is False
    assert kube.asked == [("llm", "u", "FailedCreate")]
    assert refusals.known() == {"u": (PodRefusal(pod="p-0", words="no"),)}
    assert refusals.due_in() == AGAIN_SECONDS
    clock.seconds += AGAIN_SECONDS
    assert await refusals.read(WANTED) is False, "the same words are no news"
    assert len(kube.asked) == 2
    await refusals.read(())
    assert refusals.known() == {}


async def test_the_newest_words_about_each_pod_count():
    refusals, kube, clock = reader()
    kube.events = [event("new", at=9), event("old", at=3), event("other", pod="p-1", at=1)]
    await refusals.read(WANTED)
    clock.seconds += GRACE_SECONDS
    await refusals.read(WANTED)
    assert [item.words for item in refusals.known()["u"]] == ["new", "other"]


async def test_what_was_refused_before_the_pods_were_last_whole_is_history():
    refusals, kube, clock = reader()
    clock.seconds = 1000.0
    await refusals.read(())
    await refusals.read(WANTED)
    clock.seconds += GRACE_SECONDS
    kube.events = [event("long ago", at=10)]
    assert await refusals.read(WANTED) is False
    clock.seconds += AGAIN_SECONDS
    kube.events.append(event("now", at=1002))
    assert await refusals.read(WANTED) is True
    assert [item.words for item in refusals.known()["u"]] == ["now"]


async def test_a_restarted_operator_believes_what_it_finds():
    refusals, kube, clock = reader()
    clock.seconds = 1000.0
    kube.events = [event("still", at=10)]
    await refusals.read(WANTED)
    clock.seconds += GRACE_SECONDS
    assert await refusals.read(WANTED) is True


async def test_neither_a_missing_right_nor_a_fault_breaks_anything():
    for error, again in (
        (Forbidden('cannot list resource "events"', status=403), FORBIDDEN_AGAIN_SECONDS),
        (Transient("away", status=500), AGAIN_SECONDS),
    ):
        refusals, kube, clock = reader()
        await refusals.read(WANTED)
        clock.seconds += GRACE_SECONDS
        kube.error = error
        assert await refusals.read(WANTED) is False
        assert refusals.due_in() == again
