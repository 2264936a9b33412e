"""The cycle of one pool: when it runs, what it carries on, and what it does when something fails."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from reasoningpool.adapters.errors import Cause, Forbidden, NotFound, Permanent, Transient
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.actions import Apply, EventNote, EventType, Plan
from reasoningpool.planning.observations import ContainerLogRequest
from reasoningpool.planning.snapshot import ApplyFailure
from reasoningpool.reconcile.apply.executor import NotLeading, Report
from reasoningpool.reconcile.memory import Refused, StatusSeen
from reasoningpool.reconcile.observe.pod_logs import ContainerLogReader
from reasoningpool.reconcile.observe.readers import Readers
from reasoningpool.reconcile.pool_task import PoolTask, SharedParts
from reasoningpool.reconcile.shape import digest
from reasoningpool.reconcile.sleeper import Timing
from reasoningpool.reconcile.store import Store
from unit.reconcile.builders import pool, stateful_set

QUICK = Timing(resync=60, settle=0.0, gap=0.0, first_backoff=0.01, max_backoff=0.04)
KEY = ObjectKey.of(stateful_set())
FAILURE = ApplyFailure(key=KEY, message="refused")


class Kube:
    """Answers reads of one pool and of logs."""

    def __init__(self, live=None):
        self.live = live if live is not None else pool()
        self.reads = 0
        self.logs = []

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def get(self, key, *, priority):
        self.reads += 1
        if self.live is None:
            raise NotFound("gone", status=404)
        return self.live

    async def pod_log(self, namespace, pod, container, *, previous, lines, limit_bytes):
        self.logs.append(pod)
        return "out of memory"


class Executor:
    """Records what it is asked for; `script` holds errors or reports for the next cycles."""

    def __init__(self, script=()):
        self.script = list(script)
        self.plans, self.statuses = [], []

    async def carry_out(self, name, plan, memory, *, others_wait):
        self.plans.append(plan)
        step = self.script.pop(0) if self.script else Report()
        if isinstance(step, Exception):
            raise step
        if step.failures:
            memory.refused = {item.key: Refused(b"", None, item, 1e12) for item in step.failures}
        return step

    async def apply_status(self, live, status, memory):
        self.statuses.append(status)
        return True


class Events:
    def __init__(self):
        self.sent, self.forgotten = [], []

    async def send(self, live, notes):
        self.sent.append(notes)

    def forget(self, uid):
        self.forgotten.append(uid)


class World:
    """A task among stubs, and a way to wait for what it does."""

    def __init__(self, *, planner, script=(), timing=QUICK, live=None):
        self.kube, self.executor, self.events, self.store = Kube(live), Executor(script), Events(), Store()
        self.snapshots = []

        def plan(snapshot, *, now):
            self.snapshots.append(snapshot)
            answer = planner(snapshot)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def plan_failure(snapshot, error, *, now):
            return Plan(status={"reason": error})

        self.shared = SharedParts(
            kube=self.kube,
            store=self.store,
            executor=self.executor,
            events=self.events,
            planner=plan,
            plan_failure=plan_failure,
            readers=Readers(ContainerLogReader(self.kube, self.store)),
            timing=timing,
        )
        self.task = PoolTask(pool(), self.shared)

    async def __aenter__(self):
        self.running = asyncio.create_task(self.task.run())
        return self

    async def __aexit__(self, *_):
        self.running.cancel()
        await asyncio.wait([self.running])

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - see below
                await asyncio.sleep(0)  # the condition is set by other tasks of this loop


def nothing(_snapshot):
    return Plan(status={"reason": "Ok"})


async def test_the_first_cycle_works_on_what_was_listed_and_the_next_ones_read():
    async with World(planner=nothing) as world:
        await world.until(lambda: world.task.cycles == 1 and world.executor.statuses)
        assert world.kube.reads == 0
        world.task.wake(urgent=True)
        await world.until(lambda: len(world.executor.statuses) == 2)
        assert world.kube.reads == 1


async def test_wakes_during_a_cycle_lead_to_exactly_one_more():
    def planner(snapshot):
        if len(world.snapshots) == 1:
            for _ in range(5):
                world.task.wake(urgent=True)
        return Plan()

    world = World(planner=planner)
    async with world:
        await world.until(lambda: world.task.cycles == 2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert world.task.cycles == 2


@pytest.mark.field_report("K02")
@pytest.mark.parametrize("live", [None, pool(uid="another"), pool(deletionTimestamp="2026-01-01T00:00:00Z")])
async def test_gone_or_replaced_pool_ends_its_task_without_a_write(live):
    world = World(planner=nothing)
    async with world:
        await world.until(lambda: world.executor.statuses)
        world.kube.live = live
        world.task.wake(urgent=True)
        await asyncio.wait_for(world.running, timeout=5)
    assert len(world.executor.plans) == 1
    assert world.events.forgotten == ["uid-p"]


@pytest.mark.field_report("K18")
async def test_transient_errors_are_retried_with_growing_delays(caplog):
    caplog.set_level(logging.WARNING)
    errors = [Transient("overloaded", status=503), Transient("overloaded", status=503)]
    async with World(planner=nothing, script=errors) as world:
        await world.until(lambda: world.executor.statuses)
        assert world.task.cycles == 3
    assert [record.getMessage().split(";")[0] for record in caplog.records] == ["overloaded (HTTP 503)"] * 2


@pytest.mark.field_report("K18")
async def test_internal_error_is_logged_and_reported_and_stops_no_other_pool(caplog):
    answers = [KeyError("tiers"), Plan(status={"reason": "Ok"})]
    async with World(planner=lambda _: answers.pop(0)) as world:
        await world.until(lambda: len(world.executor.statuses) == 2)
        assert world.executor.statuses == [{"reason": "KeyError"}, {"reason": "Ok"}]
    (record,) = (record for record in caplog.records if record.exc_info)
    assert "KeyError" in record.exc_text or record.exc_info[0] is KeyError
    assert (record.pool_namespace, record.pool) == ("llm", "p")


@pytest.mark.field_report("K18")
async def test_backoff_grows_to_its_limit_and_only_a_pool_change_ends_it():
    timing = Timing(resync=60, settle=0, gap=0, first_backoff=30, max_backoff=300)
    async with World(planner=lambda _: KeyError("x"), timing=timing) as world:
        await world.until(lambda: len(world.executor.statuses) == 1)
        world.task.wake(urgent=False)
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.task.cycles == 1
        world.task.wake(urgent=True)
        await world.until(lambda: world.task.cycles == 2)
    delays = [world.task._sleeper.back_off(None) for _ in range(12)]
    assert max(delays) <= 300 * 1.2
    assert delays[-1] >= 300 * 0.8


async def test_missing_permission_is_logged(caplog):
    refused = Forbidden('cannot patch resource "reasoningpools/status"', status=403)
    async with World(planner=nothing, script=[refused]) as world:
        await world.until(lambda: world.executor.statuses)
    assert 'cannot patch resource "reasoningpools/status"; grant it' in caplog.text


async def test_a_namespace_that_is_being_deleted_is_no_question_of_rights(caplog):
    caplog.set_level(logging.INFO, "reasoningpool")
    leaving = (Cause("NamespaceTerminating", "", "namespace llm is being terminated"),)
    error = Forbidden("services is forbidden", status=403, reason="Forbidden", causes=leaving)
    async with World(planner=nothing, script=[error]) as world:
        await world.until(lambda: "is being deleted" in caplog.text)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_rejected_status_is_logged_as_an_internal_error(caplog):
    async with World(planner=nothing, script=[Permanent("status.x: unknown", status=422)]) as world:
        await world.until(lambda: world.executor.statuses)
    assert "rejects the operator's request" in caplog.text


async def test_a_refusal_of_this_cycle_is_in_this_cycles_status():
    def planner(snapshot):
        return Plan(status={"reason": snapshot.failures[0].message if snapshot.failures else "Ok"})

    async with World(planner=planner, script=[Report(failures=(FAILURE,))]) as world:
        await world.until(lambda: world.executor.statuses)
        assert world.executor.statuses == [{"reason": "refused"}]


async def test_refusals_are_forgotten_when_the_generation_changes():
    script = [Report(failures=(FAILURE,)), Report(failures=(FAILURE,))]
    async with World(planner=nothing, script=script) as world:
        await world.until(lambda: world.executor.statuses)
        world.task.wake(urgent=True)
        await world.until(lambda: len(world.executor.statuses) == 2)
        assert world.snapshots[-1].failures == (FAILURE,)
        world.kube.live = pool(generation=2)
        world.task.wake(urgent=True)
        await world.until(lambda: len(world.executor.statuses) == 3)
        assert world.snapshots[-1].failures == ()


async def test_requested_logs_are_reported_at_once_and_kept_with_the_pod():
    live = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**stateful_set()["metadata"], "name": "p-a-0", "uid": "pod-1"},
    }
    request = ContainerLogRequest(namespace="llm", pod="p-a-0", pod_uid="pod-1", container="engine", previous=True)

    def planner(snapshot):
        logs = snapshot.observations.of(ContainerLogRequest)
        text = logs["pod-1"].text if logs else "no log"
        return Plan(wanted=(request,), status={"reason": text})

    async with World(planner=planner) as world:
        world.store.upsert(live)
        await world.until(lambda: world.executor.statuses)
        world.task.wake(urgent=True)
        await world.until(lambda: len(world.executor.statuses) == 2)
        assert world.executor.statuses == [{"reason": "out of memory"}] * 2
        assert world.kube.logs == ["p-a-0"]


async def test_events_of_the_plan_that_was_carried_out_are_not_lost_to_the_second_look():
    note = EventNote(type=EventType.NORMAL, reason="Created", message="creating", action="Create")

    def planner(snapshot):
        return Plan(events=() if snapshot.failures else (note,))

    async with World(planner=planner, script=[Report(failures=(FAILURE,))]) as world:
        await world.until(lambda: world.events.sent)
        assert world.events.sent == [(note,)]


async def test_nothing_is_reported_without_leadership():
    async with World(planner=nothing, script=[NotLeading()]) as world:
        await world.until(lambda: world.executor.plans)
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.executor.statuses == []
        assert world.events.sent == []


def versioned(version, status):
    return {**pool(resourceVersion=str(version)), "status": status}


async def still():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_only_a_status_that_somebody_else_wrote_is_worth_a_cycle():
    async with World(planner=lambda _: Plan(), live=versioned(5, {"reason": "Ok"})) as world:
        await world.until(lambda: world.events.sent)
        world.task.wake(urgent=True)
        await world.until(lambda: world.kube.reads == 1)
        await still()
        before = world.task.cycles
        world.task.saw_status(versioned(4, {"reason": "before"}))  # told late
        world.task.saw_status(versioned(5, {"reason": "Ok"}))  # our own write
        world.task.saw_status(versioned(6, {"reason": "Ok"}))  # something else of the pool
        await still()
        assert world.task.cycles == before
        world.task.saw_status(versioned(7, {"reason": "theirs"}))
        await world.until(lambda: world.task.cycles == before + 1)


async def test_own_status_write_seen_first_by_the_watch_wakes_nothing():
    async with World(planner=nothing, live=versioned(5, None)) as world:
        written = versioned(6, {"reason": "Ok"})

        async def apply_status(live, status, memory):
            world.task.saw_status(written)
            memory.status = StatusSeen(digest(status), digest(written["status"]), 6)
            world.executor.statuses.append(status)
            return True

        world.executor.apply_status = apply_status
        await world.until(lambda: world.executor.statuses)
        await still()
        assert world.task.cycles == 1


async def test_a_refusal_is_looked_at_when_it_is_due():
    due = []

    def planner(_snapshot):
        for refused in world.task._memory.refused.values():
            refused.retry_at = 0.0
        due.append(world.task._next_look(Plan(requeue_after_seconds=30.0)))
        return Plan()

    world = World(planner=planner, script=[Report(failures=(FAILURE,))])
    async with world:
        await world.until(lambda: len(due) == 2)
    assert due == [30.0, 1.0]


async def test_what_is_worth_an_event_is_logged_once_while_it_holds(caplog):
    caplog.set_level(logging.INFO)
    note = EventNote(type=EventType.NORMAL, reason="RolloutStarted", message="rolling", action="Update")
    async with World(planner=lambda _: Plan(events=(note,))) as world:
        for number in (1, 2, 3):
            await world.until(lambda: len(world.events.sent) == number)  # noqa: B023 - awaited at once
            world.task.wake(urgent=True)
    assert [record.getMessage() for record in caplog.records].count("RolloutStarted: rolling") == 1


async def test_a_plan_may_ask_to_be_looked_at_again_soon():
    async with World(
        planner=lambda _: Plan(requeue_after_seconds=0.001, applies=(Apply(manifest={}, why=""),))
    ) as world:
        await world.until(lambda: world.task.cycles >= 3)
