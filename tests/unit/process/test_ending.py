"""A process that does not want to stop is ended."""

from __future__ import annotations

import threading

from reasoningpool.process.ending import EXIT_FORCED, Ending


def test_the_process_is_ended_once_when_its_time_is_over() -> None:
    left: list[int] = []
    over = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        over.set()

    ending = Ending(0.01, leave)
    assert not over.wait(0.05)
    ending.begin()
    ending.begin()
    assert over.wait(5)
    assert left == [EXIT_FORCED]


def test_a_process_that_stops_in_good_order_is_left_alone() -> None:
    over = threading.Event()
    ending = Ending(0.05, lambda _: over.set())
    ending.begin()
    ending.over()
    assert not over.wait(0.2)
