"""The simulation against queueing theory, and against sums done by hand."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest

from reasoningpool.simulation.queueing import Arrivals, simulate


def erlang_c(servers: int, load: float) -> float:
    """Chance that a request waits in M/M/c."""
    below = sum(load**k / factorial(k) for k in range(servers))
    full = load**servers / factorial(servers) * servers / (servers - load)
    return full / (below + full)


def poisson(rate: float, count: int, mean_tokens: float, seed: int = 5) -> Arrivals:
    rng = np.random.default_rng(seed)
    output = np.maximum(1, np.rint(rng.exponential(mean_tokens, count)).astype(int)) + 1
    return Arrivals(
        at=np.cumsum(rng.exponential(1 / rate, count)).tolist(),
        prefill_seconds=[0.0] * count,
        thinking=[0] * count,
        output=output.tolist(),
    )


def one(output: int, thinking: int = 0, at: float = 0.0, prefill: float = 0.0) -> tuple[float, float, int, int]:
    return at, prefill, thinking, output


def arrivals(*requests: tuple[float, float, int, int]) -> Arrivals:
    at, prefill, thinking, output = zip(*requests, strict=True)
    return Arrivals(at=at, prefill_seconds=prefill, thinking=thinking, output=output)


def test_waiting_agrees_with_erlang_c_when_speed_does_not_depend_on_load() -> None:
    servers, step, mean = 8, 0.01, 1000.0
    rate = 0.85 * servers / (mean * step)
    times = simulate(poisson(rate, 150_000, mean), replicas=1, slots=servers, step_seconds=[0.0] + [step] * servers)
    load = rate * mean * step
    waits = erlang_c(servers, load)
    assert (times.queue[5000:] > 0).mean() == pytest.approx(waits, rel=0.03)
    assert times.queue[5000:].mean() == pytest.approx(waits * mean * step / (servers - load), rel=0.06)


def test_sojourn_agrees_with_processor_sharing_when_speed_is_shared() -> None:
    step, mean, slots = 0.01, 1000.0, 400
    rate = 0.7 / (mean * step)
    times = simulate(
        poisson(rate, 100_000, mean), replicas=1, slots=slots, step_seconds=[n * step for n in range(slots + 1)]
    )
    assert times.end[5000:].mean() == pytest.approx(mean * step / (1 - 0.7), rel=0.04)


def test_one_request_takes_its_prompt_its_thinking_and_its_answer() -> None:
    times = simulate(arrivals(one(11, 6, at=2.0, prefill=0.5)), replicas=1, slots=4, step_seconds=[0, 0.1, 1, 1, 1])
    assert times.queue[0] == 0
    assert times.first_answer_token[0] == pytest.approx(0.5 + 6 * 0.1)
    assert times.end[0] == pytest.approx(0.5 + 10 * 0.1)
    assert times.per_token[0] == pytest.approx(0.1)


def test_without_thinking_the_prompts_end_is_the_first_answer_token() -> None:
    times = simulate(arrivals(one(1, prefill=0.5)), replicas=1, slots=1, step_seconds=[0, 0.1])
    assert times.first_answer_token[0] == times.end[0] == pytest.approx(0.5)


def test_thinking_that_takes_everything_answers_at_its_end() -> None:
    times = simulate(arrivals(one(5, thinking=5)), replicas=1, slots=1, step_seconds=[0, 1.0])
    assert times.first_answer_token[0] == times.end[0] == pytest.approx(4)


def test_a_prompt_that_is_computed_holds_up_those_that_decode() -> None:
    first, second = one(11), one(1, at=0.5, prefill=2.0)
    times = simulate(arrivals(first, second), replicas=1, slots=2, step_seconds=[0, 0.1, 0.1])
    assert times.end[0] == pytest.approx(1.0 + 2.0)


def test_two_that_run_slow_each_other_down() -> None:
    times = simulate(arrivals(one(11), one(6)), replicas=1, slots=2, step_seconds=[0, 0.1, 0.2])
    assert times.end.tolist() == pytest.approx([5 * 0.2 + 5 * 0.1, 5 * 0.2])


def test_requests_beyond_the_slots_wait_in_order_of_arrival() -> None:
    times = simulate(arrivals(*(one(11, at=0.01 * n) for n in range(4))), replicas=1, slots=1, step_seconds=[0, 0.1])
    assert times.end.tolist() == pytest.approx([1.0, 1.99, 2.98, 3.97])
    assert times.queue.tolist() == pytest.approx([0, 0.99, 1.98, 2.97])


def test_a_request_goes_to_the_replica_with_the_fewest() -> None:
    times = simulate(arrivals(one(101), one(11, at=0.1), one(11, at=5.0)), replicas=2, slots=1, step_seconds=[0, 0.1])
    assert times.queue.tolist() == [0, 0, 0]


def test_more_replicas_never_make_the_mean_wait_longer() -> None:
    found = [
        simulate(poisson(4.0, 4000, 100.0), replicas=count, slots=4, step_seconds=[0, 0.01, 0.012, 0.014, 0.016])
        for count in (1, 2, 4)
    ]
    waits = [times.queue.mean() for times in found]
    assert waits == sorted(waits, reverse=True)
