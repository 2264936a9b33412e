"""Time is what the API server says and what has passed since; a wall clock that is set changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reasoningpool.adapters.server_clock import ServerClock, boot_seconds
from reasoningpool.process.heartbeat import Heartbeats
from reasoningpool.process.lease import Lease

START = datetime(2026, 1, 5, 10, tzinfo=UTC)
STAMP = "Mon, 05 Jan 2026 10:00:00 GMT"


class Clocks:
    def __init__(self):
        self.passed = 100.0
        self.wall = START + timedelta(minutes=7)


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def clock(clocks):
    return ServerClock(elapsed=lambda: clocks.passed, wall=lambda: clocks.wall)


def test_before_the_first_answer_it_is_the_wall_clock(clocks, clock):
    assert clock.now() == clocks.wall


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_wall_clock_that_is_set_changes_nothing(clocks, clock, jump):
    clock.note(STAMP)
    clocks.passed += 30
    clocks.wall += timedelta(seconds=jump)
    assert clock.now() == START + timedelta(seconds=30)


def test_a_newer_answer_corrects_what_has_passed(clocks, clock):
    clock.note(STAMP)
    clocks.passed += 30
    clock.note("Mon, 05 Jan 2026 10:00:20 GMT")
    assert clock.now() == START + timedelta(seconds=20)


def test_the_same_second_said_again_does_not_hold_the_time_back(clocks, clock):
    clock.note(STAMP)
    clocks.passed += 0.9
    clock.note(STAMP)
    assert clock.now() == START + timedelta(seconds=0.9)


@pytest.mark.parametrize("date", [None, "", "yesterday", "99 Foo 10000", "Mon, 05 Jan 2026 10:00:00 -0000"])
def test_an_answer_without_a_usable_date_is_passed_over(clocks, clock, date):
    clock.note(STAMP)
    clock.note(date)
    assert clock.now() == START


def test_waiting_is_measured_by_clocks_that_nobody_sets(monkeypatch):
    """Lease and watches: an hour's jump of the wall clock is no hour without a renewal or a sign of life."""
    monkeypatch.setattr("time.time", lambda: 4_102_444_800.0)
    before = boot_seconds()
    lease = Lease(None, namespace="n", name="l", identity="me")
    lease._renewed_at = before
    beats = Heartbeats(10.0)
    beats.expect(["/a"])
    assert lease.held
    assert beats.dead() == []
    assert boot_seconds() - before < 3600
