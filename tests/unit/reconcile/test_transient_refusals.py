"""Transient errors of one child: a moment's trouble is tried again, what comes again is told like a refusal."""

from __future__ import annotations

from typing import Any

from reasoningpool.adapters.errors import Permanent, Transient
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.actions import Apply, Delete, Plan
from reasoningpool.reconcile.apply.executor import Executor
from reasoningpool.reconcile.memory import PoolMemory
from reasoningpool.reconcile.store import PoolName, Store
from unit.reconcile.builders import meta, pod, stateful_set

POOL = PoolName("llm", "p")
WEBHOOK = 'Internal error occurred: failed calling webhook "a.b.c": connection refused'
OWNER = {"ownerReferences": [{"uid": "uid-p", "controller": True}]}


class Kube:
    """Takes everything but the kinds in `down`."""

    def __init__(self, *down: str) -> None:
        self.down = set(down)
        self.sent: list[str] = []

    async def apply(self, manifest: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._meet(manifest["kind"])
        return manifest | {"metadata": meta(manifest["metadata"]["name"], **OWNER)}

    async def delete(self, key: ObjectKey, **_: Any) -> None:
        self._meet(key.kind)

    def _meet(self, kind: str) -> None:
        self.sent.append(kind)
        if kind in self.down:
            raise Transient(WEBHOOK, status=500)


def service() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta("p-a", **OWNER), "spec": {}}


def plan(**more: Any) -> Plan:
    applies = (stateful_set(**OWNER), service())
    return Plan(applies=tuple(Apply(manifest=manifest, why="a test") for manifest in applies), **more)


async def test_transient_error_that_comes_again_is_a_failure_and_the_cycle_goes_through() -> None:
    kube = Kube("StatefulSet")
    executor, memory = Executor(kube, Store()), PoolMemory()
    first = await executor.carry_out(POOL, plan(), memory)
    assert ([str(error) for error in first.transient], first.failures) == ([WEBHOOK], ())
    second = await executor.carry_out(POOL, plan(), memory)
    assert second.transient == []
    assert [(failure.key.kind, failure.message) for failure in second.failures] == [("StatefulSet", WEBHOOK)]
    assert memory.next_retry() is not None


async def test_failure_ends_with_the_first_apply_that_goes_through() -> None:
    kube = Kube("StatefulSet")
    executor, memory = Executor(kube, Store()), PoolMemory()
    for _ in range(3):
        await executor.carry_out(POOL, plan(), memory)
    kube.down.clear()
    memory.refused[ObjectKey.of(stateful_set())].retry_at = 0.0
    report = await executor.carry_out(POOL, plan(), memory)
    assert (report.failures, report.transient, memory.stumbled) == ((), [], set())


async def test_deletion_that_meets_transient_errors_again_holds_nothing_up() -> None:
    kube = Kube("Pod")
    executor, memory = Executor(kube, Store()), PoolMemory()
    delete = Delete(key=ObjectKey.of(pod("p-a-0")), uid="uid-p-a-0", why="a test")
    reports = [await executor.carry_out(POOL, plan(deletes=(delete,)), memory) for _ in range(3)]
    assert [len(report.transient) for report in reports] == [1, 0, 0]
    assert [len(report.failures) for report in reports] == [0, 1, 1]
    kube.down.clear()
    assert (await executor.carry_out(POOL, plan(deletes=(delete,)), memory)).failures == ()


async def test_permanent_error_is_a_failure_at_once() -> None:
    class Refusing(Kube):
        async def apply(self, manifest: dict[str, Any], **_: Any) -> dict[str, Any]:
            raise Permanent("no", status=400)

    report = await Executor(Refusing(), Store()).carry_out(POOL, plan(), PoolMemory())
    assert len(report.failures) == 2
