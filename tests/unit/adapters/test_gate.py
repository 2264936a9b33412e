"""Requests wait in order of their urgency."""

import asyncio

import pytest

from reasoningpool.adapters.gate import Allowance, Gate, Priority


async def use(gate, priority, log, name, hold):
    async with gate.slot(priority):
        log.append(name)
        await hold.wait()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_engines_pass_before_completions_and_equals_in_order_of_arrival():
    gate, log, hold = Gate(1), [], asyncio.Event()
    wishes = [("first", Priority.NORMAL), ("pdb", Priority.NORMAL), ("event", Priority.BACKGROUND)]
    wishes += [("set-a", Priority.URGENT), ("set-b", Priority.URGENT), ("service", Priority.NORMAL)]
    tasks = []
    for name, priority in wishes:
        tasks.append(asyncio.create_task(use(gate, priority, log, name, hold)))
        await settle()
    hold.set()
    await asyncio.gather(*tasks)
    assert log == ["first", "set-a", "set-b", "pdb", "service", "event"]


async def test_no_more_than_the_slots_are_in_use():
    gate, log, hold = Gate(3), [], asyncio.Event()
    tasks = [asyncio.create_task(use(gate, Priority.NORMAL, log, index, hold)) for index in range(10)]
    await settle()
    assert len(log) == 3
    hold.set()
    await asyncio.gather(*tasks)
    assert len(log) == 10


async def test_a_waiter_cancelled_as_its_turn_comes_hands_the_slot_on():
    gate, log, hold = Gate(1), [], asyncio.Event()
    await gate._acquire(Priority.NORMAL)
    waiter = asyncio.create_task(use(gate, Priority.NORMAL, log, "cancelled", hold))
    await settle()
    gate._release()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    hold.set()
    await asyncio.wait_for(use(gate, Priority.NORMAL, log, "next", hold), timeout=1)
    assert log == ["next"]


def test_an_allowance_is_shared_and_comes_back_with_time():
    now = 100.0
    allowance = Allowance(10.0, clock=lambda: now)
    assert sum(allowance.take() for _ in range(1000)) == 10
    now += 0.5
    assert sum(allowance.take() for _ in range(1000)) == 5
    now += 3600.0
    assert sum(allowance.take() for _ in range(1000)) == 10
