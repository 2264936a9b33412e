"""What plans ask for goes to the reader of its kind, and comes back under that kind."""

import math
from dataclasses import dataclass, replace

from typing_extensions import override

from reasoningpool.adapters.errors import NotFound
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.actions import Plan
from reasoningpool.planning.observations import ContainerLog, ContainerLogRequest, KVPoolRequest, Request
from reasoningpool.reconcile.observe import pod_logs
from reasoningpool.reconcile.observe.pod_logs import ContainerLogReader
from reasoningpool.reconcile.observe.readers import Readers
from reasoningpool.reconcile.store import PoolName, Store
from unit.reconcile.builders import stateful_set
from unit.reconcile.test_pool_task import World

POOL = PoolName("llm", "p")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest(Request[int]):
    """A kind that the operator does not know: it needs no more than a reader and its registration."""

    tier: str

    @property
    @override
    def subject(self) -> str:
        return self.tier


class QueueReader:
    kind = QueueRequest

    def __init__(self, due=math.inf):
        self.wanted, self.due, self.forgotten = (), due, []

    def want(self, pool, requests):
        self.wanted = requests

    async def read(self, pool):
        return False

    def known(self, pool):
        return {request.subject: 7 for request in self.wanted}

    def due_in(self, pool):
        return self.due

    def forget(self, pool):
        self.forgotten.append(pool)

    async def stop(self):
        pass


async def test_each_reader_gets_the_requests_of_its_kind():
    queues = QueueReader()
    readers = Readers(queues)
    request = QueueRequest(tier="chat")
    readers.want(POOL, (request, KVPoolRequest(engine="e", address="10.0.0.1", port=8000)))
    assert queues.wanted == (request,)
    observations = readers.known(POOL)
    assert observations.of(QueueRequest) == {"chat": 7}
    assert observations.of(KVPoolRequest) == {}
    assert await readers.read(POOL) is False


def test_earliest_reader_says_when_to_look_again():
    assert Readers().due_in(POOL) == math.inf
    assert Readers(QueueReader(30.0), QueueReader(5.0), QueueReader()).due_in(POOL) == 5.0


async def test_further_kind_reaches_the_next_plan_and_is_forgotten_with_the_pool():
    def planner(snapshot):
        answers = snapshot.observations.of(QueueRequest)
        return Plan(wanted=(QueueRequest(tier="chat"),), status={"queue": answers.get("chat")})

    queues = QueueReader()
    world = World(planner=planner)
    world.task._shared = replace(world.shared, readers=Readers(queues))
    async with world:
        await world.until(lambda: world.executor.statuses)
        world.task.wake(urgent=True)
        await world.until(lambda: len(world.executor.statuses) == 2)
    assert world.executor.statuses == [{"queue": None}, {"queue": 7}]
    assert queues.forgotten == [POOL]


# -- log ends ------------------------------------------------------------------------------------------------------


class Logs:
    def __init__(self, *texts):
        self.texts, self.asked = list(texts), 0

    async def pod_log(self, namespace, name, container, **_):
        self.asked += 1
        text = self.texts.pop(0)
        if text is None:
            raise NotFound("no log", status=404)
        return text


def pod(version, uid="pod-1"):
    meta = {**stateful_set()["metadata"], "name": "p-a-0", "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def log_request(*, previous=False):
    return ContainerLogRequest(namespace="llm", pod="p-a-0", pod_uid="pod-1", container="engine", previous=previous)


async def cycle(reader, *requests):
    reader.want(POOL, requests)
    return await reader.read(POOL)


async def test_log_is_kept_while_its_pod_stays_as_it_was_though_nobody_asks(monkeypatch):
    monkeypatch.setattr(pod_logs, "_AGAIN_SECONDS", 0.0)
    store, kube = Store(), Logs("first", "second")
    store.upsert(pod(1))
    reader = ContainerLogReader(kube, store)
    assert await cycle(reader, log_request()) is True
    assert await cycle(reader) is False
    assert reader.known(POOL) == {"pod-1": ContainerLog(container="engine", previous=False, text="first")}
    store.upsert(pod(2))
    assert await cycle(reader) is False
    assert reader.known(POOL) == {}
    assert await cycle(reader, log_request()) is True
    assert kube.asked == 2


async def test_log_of_a_crash_loop_is_not_read_at_every_restart():
    store, kube = Store(), Logs("first")
    store.upsert(pod(1))
    reader = ContainerLogReader(kube, store)
    await cycle(reader, log_request())
    for version in (2, 3, 4):
        store.upsert(pod(version))
        assert await cycle(reader, log_request()) is False
    assert kube.asked == 1


async def test_log_of_another_run_is_read_and_one_that_cannot_be_read_is_empty():
    store, kube = Store(), Logs("now", None)
    store.upsert(pod(1))
    reader = ContainerLogReader(kube, store)
    await cycle(reader, log_request())
    assert await cycle(reader, log_request(previous=True)) is True
    assert reader.known(POOL)["pod-1"].text == ""


async def test_log_goes_with_its_pod_and_its_pool():
    store, kube = Store(), Logs("one", "two")
    store.upsert(pod(1))
    reader = ContainerLogReader(kube, store)
    await cycle(reader, log_request())
    store.remove(POOL, ObjectKey("v1", "Pod", "llm", "p-a-0"), "pod-1")
    await cycle(reader)
    assert reader.known(POOL) == {}
    await cycle(reader, log_request())
    reader.forget(POOL)
    assert reader.known(POOL) == {}
