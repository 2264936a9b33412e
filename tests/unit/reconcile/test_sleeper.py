"""What ends the wait between two cycles, and when."""

import asyncio
import time

import pytest

from reasoningpool.reconcile.sleeper import Sleeper, Timing

NEVER = 60.0
GAP = 0.05


async def slept(sleeper, delay=NEVER):
    """Seconds of one sleep."""
    started = time.monotonic()
    await asyncio.wait_for(sleeper.sleep(delay), timeout=5)
    return time.monotonic() - started


async def test_a_wake_during_the_cycle_counts_and_children_wait_out_the_gap():
    sleeper = Sleeper(Timing(gap=GAP, settle=0.0))
    sleeper.begin_cycle()
    sleeper.wake(urgent=False)
    assert await slept(sleeper) >= 0.9 * GAP
    assert not sleeper.begin_cycle()


async def test_a_change_of_the_pool_ends_the_gap():
    sleeper = Sleeper(Timing(gap=NEVER, settle=0.0))
    sleeper.wake(urgent=False)
    asyncio.get_running_loop().call_later(GAP, lambda: sleeper.wake(urgent=True))
    await slept(sleeper)
    assert sleeper.begin_cycle()


async def test_after_a_failure_only_the_clock_or_the_pool_itself_wakes():
    sleeper = Sleeper(Timing(gap=0.0, settle=0.0, first_backoff=NEVER))
    sleeper.back_off(None)
    sleeper.wake(urgent=False)
    assert await slept(sleeper, GAP) >= 0.9 * GAP
    sleeper.wake(urgent=True)
    await slept(sleeper)
    sleeper.begin_cycle()
    sleeper.succeeded()
    sleeper.wake(urgent=False)
    await slept(sleeper)


async def test_children_seen_in_the_snapshot_wake_nothing_but_a_pool_change_does():
    sleeper = Sleeper(Timing(gap=0.0, settle=0.0))
    sleeper.wake(urgent=False)
    sleeper.children_seen()
    assert await slept(sleeper, GAP) >= 0.9 * GAP
    sleeper.wake(urgent=True)
    sleeper.children_seen()
    await slept(sleeper)
    assert sleeper.begin_cycle()


@pytest.mark.parametrize("failures", [1, 30])
def test_what_the_server_asks_for_is_the_least(failures):
    sleeper = Sleeper(Timing(first_backoff=1.0, max_backoff=4.0))
    assert [sleeper.back_off(9.0) for _ in range(failures)] == [9.0] * failures
