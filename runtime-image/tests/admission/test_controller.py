"""Admission in an event loop: waiting, leaving, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from reasoningpool_runtime.admission import (
    AdmissionConfig,
    AdmissionController,
    AdmissionRequest,
    Capacity,
    Outcome,
    Reason,
    Rejected,
    Ticket,
)

POOL = Capacity(blocks=255, block_tokens=16)
DEADLINE_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def request(**fields: object) -> AdmissionRequest:
    return AdmissionRequest(**{"effort": "high", "prompt_tokens": 64, "max_output_tokens": 1000} | fields)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def controller(clock: Clock) -> AdmissionController:
    return AdmissionController(POOL, AdmissionConfig(), clock)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the controller has no event for it
            await asyncio.sleep(0)


async def fill(controller: AdmissionController, one: AdmissionRequest | None = None) -> list[Ticket]:
    """Three requests, which is all that fits without history."""
    return [await controller.admit(one or request()) for _ in range(3)]


async def waiting(controller: AdmissionController, one: AdmissionRequest | None = None) -> asyncio.Task[Ticket]:
    before = controller.snapshot().waiting
    task = asyncio.create_task(controller.admit(one or request()))
    await until(lambda: controller.snapshot().waiting == before + 1)
    return task


def idle(controller: AdmissionController) -> bool:
    now = controller.snapshot()
    return (now.running, now.waiting, now.waiting_tokens, now.resident_tokens, now.committed_tokens) == (0,) * 5


async def test_a_request_waits_until_another_has_finished(controller: AdmissionController, clock: Clock) -> None:
    tickets = await fill(controller)
    task = await waiting(controller)
    clock.now = 2.0
    tickets[0].finish(Outcome.COMPLETED)
    assert (await task).waited_seconds == 2.0
    assert controller.snapshot().wait_seconds_total == 2.0


async def test_a_share_is_free_at_once_and_once(controller: AdmissionController) -> None:
    tickets = await fill(controller)
    for ticket in tickets:
        ticket.finish(Outcome.CANCELLED)
        ticket.finish(Outcome.COMPLETED)
        ticket.tokens_generated(5)
        ticket.output_finished(0)
    assert idle(controller)
    await fill(controller)


async def test_a_caller_that_leaves_while_waiting_leaves_nothing(controller: AdmissionController) -> None:
    tickets = await fill(controller)
    first, second = await waiting(controller), await waiting(controller)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    tickets[0].finish(Outcome.COMPLETED)
    (await second).finish(Outcome.COMPLETED)
    for ticket in tickets[1:]:
        ticket.finish(Outcome.COMPLETED)
    assert idle(controller)


async def test_a_caller_that_leaves_in_the_moment_of_admission_leaves_nothing(controller: AdmissionController) -> None:
    tickets = await fill(controller)
    task = await waiting(controller)
    tickets[0].finish(Outcome.COMPLETED)  # admits it, but the task has not run yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for ticket in tickets[1:]:
        ticket.finish(Outcome.COMPLETED)
    assert idle(controller)


async def test_a_wait_that_is_too_long_is_rejected_with_a_time_to_retry(clock: Clock) -> None:
    controller = AdmissionController(POOL, AdmissionConfig(max_wait_seconds=5.0), clock)
    await fill(controller)
    task = await waiting(controller)
    clock.now = 5.0
    with pytest.raises(Rejected) as caught:
        async with asyncio.timeout(DEADLINE_S):
            await task
    assert caught.value.reason is Reason.WAIT_TIMEOUT
    assert caught.value.retry_after_seconds is not None
    assert controller.snapshot().waiting == 0


async def test_a_full_queue_rejects(clock: Clock) -> None:
    controller = AdmissionController(POOL, AdmissionConfig(max_queued_requests=1), clock)
    tickets = await fill(controller)
    task = await waiting(controller)
    with pytest.raises(Rejected) as caught:
        await controller.admit(request())
    assert caught.value.reason is Reason.QUEUE_FULL
    assert controller.snapshot().rejected_total == {Reason.QUEUE_FULL: 1}
    tickets[0].finish(Outcome.COMPLETED)
    await task


async def test_a_request_that_never_fits_is_rejected_without_a_time_to_retry(controller: AdmissionController) -> None:
    with pytest.raises(Rejected) as caught:
        await controller.admit(request(prompt_tokens=5000))
    assert (caught.value.reason, caught.value.retry_after_seconds) == (Reason.TOO_LARGE, None)


async def test_small_requests_do_not_overtake_a_large_one(controller: AdmissionController) -> None:
    tickets = await fill(controller)
    large = await waiting(controller, request(prompt_tokens=2000))
    small = await waiting(controller, request(prompt_tokens=1, max_output_tokens=16))
    tickets[0].finish(Outcome.COMPLETED)
    controller.poll()
    assert not small.done()
    for ticket in tickets[1:]:
        ticket.finish(Outcome.COMPLETED)
    await large


async def test_new_limits_act_at_once(controller: AdmissionController) -> None:
    await fill(controller)
    task = await waiting(controller)
    controller.configure(AdmissionConfig(enabled=False))
    await task


async def test_without_admission_everything_starts_and_is_counted(clock: Clock) -> None:
    controller = AdmissionController(POOL, AdmissionConfig(enabled=False), clock)
    for _ in range(20):
        await controller.admit(request())
    assert controller.snapshot().running == 20
    assert controller.snapshot().committed_tokens > controller.snapshot().capacity_tokens


async def test_drain_rejects_what_is_new_and_returns_when_idle(controller: AdmissionController) -> None:
    tickets = await fill(controller)
    task = await waiting(controller)
    drain = asyncio.create_task(controller.drain())
    await until(lambda: controller.snapshot().draining)
    with pytest.raises(Rejected) as caught:
        await controller.admit(request())
    assert caught.value.reason is Reason.DRAINING
    for ticket in tickets:
        ticket.finish(Outcome.COMPLETED)
    (await task).finish(Outcome.COMPLETED)
    async with asyncio.timeout(DEADLINE_S):
        assert await drain


async def test_drain_gives_up_when_its_time_is_over(controller: AdmissionController) -> None:
    await fill(controller)
    assert not await controller.drain(timeout_seconds=0.01)


async def test_drain_of_an_idle_server_returns_at_once(controller: AdmissionController) -> None:
    assert await controller.drain()
    controller.resume()
    await controller.admit(request())


async def test_a_response_that_is_not_streamed_is_followed_by_the_measured_pace(
    controller: AdmissionController, clock: Clock
) -> None:
    streamed = await controller.admit(request())
    for _ in range(10):
        clock.now += 1.0
        streamed.tokens_generated(50)
    plain = await controller.admit(request(streamed=False))
    before = controller.snapshot().resident_tokens
    clock.now += 4.0
    assert controller.snapshot().resident_tokens - before == pytest.approx(200, abs=16)
    plain.finish(Outcome.COMPLETED, output_tokens=300)
    streamed.finish(Outcome.COMPLETED, output_tokens=500)
    assert idle(controller)


class Crowd:
    """Random requests: streamed, plain, cancelled while waiting or running, failed, rejected."""

    def __init__(self, controller: AdmissionController, clock: Clock, seed: int) -> None:
        self.controller, self.clock, self.chance = controller, clock, random.Random(seed)
        self.ended: Counter[str] = Counter()

    async def one(self) -> None:
        try:
            ticket = await self.controller.admit(self.request())
        except Rejected:
            self.ended["rejected"] += 1
            return
        outcome = Outcome.CANCELLED
        try:
            await self.serve(ticket)
            outcome = Outcome.FAILED if self.chance.random() < 0.1 else Outcome.COMPLETED
        finally:
            ticket.finish(outcome, self.chance.choice([None, 50]))
            self.ended[outcome] += 1

    def request(self) -> AdmissionRequest:
        chance, prompt = self.chance, self.chance.randint(0, 300)
        return request(
            effort=chance.choice(["low", "high"]),
            prompt_tokens=prompt,
            max_output_tokens=chance.randint(1, 400),
            outputs=chance.choice([1, 1, 1, 3]),
            priority=chance.randint(0, 2),
            streamed=chance.random() < 0.7,
            prefix=chance.choice([None, "a"]),
            prefix_tokens=min(prompt, 64),
        )

    async def serve(self, ticket: Ticket) -> None:
        for _ in range(self.chance.randint(0, 8)):
            self.clock.now += 0.01
            await asyncio.sleep(0)
            ticket.tokens_generated(self.chance.randint(0, 40))


async def test_nothing_stays_after_thousands_of_random_requests(clock: Clock) -> None:
    controller = AdmissionController(POOL, AdmissionConfig(max_queued_requests=40), clock)
    crowd, chance = Crowd(controller, clock, 7), random.Random(8)
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.timeout(120):
        for number in range(3000):
            tasks.append(asyncio.create_task(crowd.one()))
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            if chance.random() < 0.1:
                chance.choice(tasks).cancel()
            if number % 100 == 0:
                limit = chance.choice([None, 5])
                controller.configure(AdmissionConfig(max_queued_requests=40, max_running=limit))
                now = controller.snapshot()
                assert now.resident_tokens <= now.committed_tokens
        await asyncio.gather(*tasks, return_exceptions=True)
    assert idle(controller)
    assert set(crowd.ended) == {*Outcome, "rejected"}
    assert await controller.drain()
