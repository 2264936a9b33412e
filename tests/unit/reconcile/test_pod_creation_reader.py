"""When events about missing pods are read, and which of them count."""

from datetime import UTC, datetime, timedelta

from reasoningpool.adapters.errors import Forbidden, Transient
from reasoningpool.planning.observations import PodCreationFailure, PodCreationFailuresRequest
from reasoningpool.reconcile.observe.pod_creations import (
    AGAIN_SECONDS,
    FORBIDDEN_AGAIN_SECONDS,
    GRACE_SECONDS,
    PodCreationFailureReader,
)
from reasoningpool.reconcile.store import PoolName

POOL = PoolName("llm", "p")
WANTED = (PodCreationFailuresRequest(namespace="llm", stateful_set_uid="u"),)
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


class Reader(PodCreationFailureReader):
    """Of one pool, each read after a plan."""

    async def cycle(self, requests):
        self.want(POOL, requests)
        return await self.read(POOL)


def made():
    kube, clock = Kube(), Clock()
    return Reader(kube, clock=clock.now, wall=clock.wall), kube, clock


async def test_nothing_is_read_while_pods_may_still_be_on_their_way():
    reader, kube, clock = made()
    assert reader.due_in(POOL) == float("inf")
    assert await reader.cycle(WANTED) is False
    assert reader.due_in(POOL) == GRACE_SECONDS
    clock.seconds += GRACE_SECONDS - 1
    await reader.cycle(WANTED)
    assert kube.asked == []
    await reader.cycle(())
    assert reader.due_in(POOL) == float("inf")


async def test_lasting_shortage_is_read_once_a_while_and_forgotten_when_it_ends():
    reader, kube, clock = made()
    kube.events = [event("no", at=1)]
    await reader.cycle(WANTED)
    clock.seconds += GRACE_SECONDS
    assert await reader.cycle(WANTED) is True
    assert await reader.cycle(WANTED) is False
    assert kube.asked == [("llm", "u", "FailedCreate")]
    assert reader.known(POOL) == {"u": (PodCreationFailure(pod="p-0", message="no"),)}
    assert reader.due_in(POOL) == AGAIN_SECONDS
    clock.seconds += AGAIN_SECONDS
    assert await reader.cycle(WANTED) is False, "the same words are no news"
    assert len(kube.asked) == 2
    await reader.cycle(())
    assert reader.known(POOL) == {}


async def test_the_newest_words_about_each_pod_count():
    reader, kube, clock = made()
    kube.events = [event("new", at=9), event("old", at=3), event("other", pod="p-1", at=1)]
    await reader.cycle(WANTED)
    clock.seconds += GRACE_SECONDS
    await reader.cycle(WANTED)
    assert [item.message for item in reader.known(POOL)["u"]] == ["new", "other"]


async def test_what_was_refused_before_the_pods_were_last_whole_is_history():
    reader, kube, clock = made()
    clock.seconds = 1000.0
    await reader.cycle(())
    await reader.cycle(WANTED)
    clock.seconds += GRACE_SECONDS
    kube.events = [event("long ago", at=10)]
    assert await reader.cycle(WANTED) is False
    clock.seconds += AGAIN_SECONDS
    kube.events.append(event("now", at=1002))
    assert await reader.cycle(WANTED) is True
    assert [item.message for item in reader.known(POOL)["u"]] == ["now"]


async def test_a_restarted_operator_believes_what_it_finds():
    reader, kube, clock = made()
    clock.seconds = 1000.0
    kube.events = [event("still", at=10)]
    await reader.cycle(WANTED)
    clock.seconds += GRACE_SECONDS
    assert await reader.cycle(WANTED) is True


async def test_neither_a_missing_right_nor_a_fault_breaks_anything():
    for error, again in (
        (Forbidden('cannot list resource "events"', status=403), FORBIDDEN_AGAIN_SECONDS),
        (Transient("away", status=500), AGAIN_SECONDS),
    ):
        reader, kube, clock = made()
        await reader.cycle(WANTED)
        clock.seconds += GRACE_SECONDS
        kube.error = error
        assert await reader.cycle(WANTED) is False
        assert reader.due_in(POOL) == again
