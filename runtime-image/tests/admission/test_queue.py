"""Order and bounds of the waiting requests."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool_runtime.admission.ledger import Share
from reasoningpool_runtime.admission.queue import Waiting, WaitingQueue
from reasoningpool_runtime.admission.types import AdmissionConfig, AdmissionRequest, Reason


def waiting(since: float, *, priority: int = 0, prompt: int = 10) -> Waiting:
    one = AdmissionRequest(effort="low", prompt_tokens=prompt, max_output_tokens=10, priority=priority)
    return Waiting(Share(one, np.zeros((1, 1))), since)


def drained(queue: WaitingQueue, now: float) -> list[Waiting]:
    order = []
    while (head := queue.head(now)) is not None:
        order.append(head)
        assert queue.remove(head)
    return order


@settings(deadline=None)
@given(st.lists(st.integers(-2, 5), max_size=30))
def test_requests_leave_by_priority_and_then_in_the_order_of_arrival(priorities: list[int]) -> None:
    queue = WaitingQueue(AdmissionConfig())
    entries = [waiting(0.0, priority=priority) for priority in priorities]
    for entry in entries:
        queue.push(entry)
    expected = sorted(entries, key=lambda entry: (min(max(entry.share.request.priority, 0), 2), entry.number))
    assert drained(queue, 0.0) == expected
    assert (len(queue), queue.tokens) == (0, 0)


def test_a_request_that_has_waited_long_is_not_overtaken_by_urgent_ones() -> None:
    queue = WaitingQueue(AdmissionConfig(aging_seconds=10.0))
    late, old = waiting(0.0, priority=2), waiting(14.0, priority=0)
    queue.push(late)
    queue.push(old)
    assert queue.head(15.0) is old
    assert queue.head(25.0) is late


def test_count_and_prompt_tokens_are_bounded() -> None:
    queue = WaitingQueue(AdmissionConfig(max_queued_requests=2, max_queued_tokens=100))
    queue.push(waiting(0.0, prompt=60))
    assert queue.refusal(41) is Reason.QUEUE_TOKENS
    assert queue.refusal(40) is None
    queue.push(waiting(0.0, prompt=40))
    assert queue.refusal(0) is Reason.QUEUE_FULL


def test_waits_expire() -> None:
    queue = WaitingQueue(AdmissionConfig(max_wait_seconds=5.0))
    first, second = waiting(0.0), waiting(3.0)
    queue.push(first)
    queue.push(second)
    assert queue.expired(4.9) == []
    assert queue.expired(5.0) == [first]
    assert queue.oldest_wait_seconds(5.0) == 5.0


def test_a_request_leaves_once() -> None:
    queue = WaitingQueue(AdmissionConfig())
    entry = waiting(0.0)
    queue.push(entry)
    assert queue.remove(entry)
    assert not queue.remove(entry)
    assert len(queue) == 0


def test_fewer_priorities_keep_what_waits_and_its_order() -> None:
    queue = WaitingQueue(AdmissionConfig(priorities=3))
    entries = [waiting(0.0, priority=priority) for priority in (2, 1, 0)]
    for entry in entries:
        queue.push(entry)
    queue.configure(AdmissionConfig(priorities=1))
    assert drained(queue, 0.0) == entries
