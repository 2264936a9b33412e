"""How many replicas: laws of the answer, on the sizing's own plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reasoningpool.capacity.plan import TierCapacity, plan_tier
from reasoningpool.requests.tier_requests import TierRequests
from reasoningpool.simulation.replica_speed import simulate_times
from reasoningpool.simulation.replicas import Objectives
from reasoningpool.simulation.traffic import Traffic
from reasoningpool.sizing import DoesNotFit, SizingInput
from unit.capacity.builders import effort, log, requests
from unit.sizing.builders import accelerator, geometry, sizing_input

NONE = Objectives(first_answer_token_seconds=None, per_token_seconds=None, percentile=90)


def inputs(**changes: object) -> SizingInput:
    base = sizing_input(geometry=geometry("Qwen/Qwen3-32B-FP8"), accelerator=accelerator("H100-SXM-80GB"))
    return replace(base, **changes)


def drawn(count: int = 3000, *, seconds: bool = False) -> TierRequests:
    rng = np.random.default_rng(3)
    thinking = rng.lognormal(6.5, 0.8, count).astype(int) + 1
    answer = rng.lognormal(5.5, 0.5, count).astype(int) + 1
    columns = {"seconds": np.cumsum(rng.exponential(0.5, count))} if seconds else {}
    whole = log(
        (thinking + answer).tolist(),
        thinking=thinking.tolist(),
        prompt=rng.lognormal(7, 0.6, count).astype(int).tolist(),
        **columns,
    )
    return requests(whole, effort("high", 8192, 2048, prompt_tokens=8192))


def planned(rate: float = 4.0, objectives: Objectives = NONE, **changes: object) -> TierCapacity:
    found = plan_tier(inputs(**changes), drawn(), rate=rate, objectives=objectives, price_per_gpu_hour=2.0)
    assert isinstance(found, TierCapacity)
    return found


def wanting(first: float | None = None, per_token: float | None = None, percentile: int = 90) -> Objectives:
    return Objectives(first_answer_token_seconds=first, per_token_seconds=per_token, percentile=percentile)


def test_more_requests_never_need_fewer_replicas() -> None:
    counts = [planned(rate).answer.replicas for rate in (0.5, 2, 8, 32, 128)]
    assert counts == sorted(counts)
    assert counts[-1] > 10 * counts[0]


def test_utilization_stays_below_its_bound_with_one_replica_fewer_above_it() -> None:
    found = planned(32).answer
    assert found.utilization <= 0.85 < found.utilization * found.replicas / (found.replicas - 1)


def test_tighter_objectives_never_need_fewer_replicas_and_are_kept() -> None:
    answers = [planned(32, wanting(first=first)).answer for first in (200, 60, 45)]
    counts = [answer.replicas for answer in answers]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0] == answers[0].by_load
    assert all(objective.met for answer in answers for objective in answer.objectives)


def test_fewest_replicas_are_found() -> None:
    """One fewer than the answer does not keep the objective."""
    wanted = 45
    found = planned(32, wanting(first=wanted))
    fewer = simulate_times(found.service, found.traffic, rate=32, replicas=found.answer.replicas - 1)
    assert np.quantile(fewer.first_answer_token, 0.9) > wanted


def test_unreachable_objective_suggests_a_thinking_budget() -> None:
    found = planned(4, wanting(first=5))
    (objective,) = found.answer.objectives
    assert not objective.reachable
    assert not found.kept
    assert found.answer.replicas == found.answer.by_load
    tokens = found.thinking_within(5, 90)
    step = found.service.step_seconds[1]
    prompt = np.quantile(found.service.prefill_seconds, 0.9)
    assert prompt + tokens * step <= 5 < prompt + (tokens + 2) * step


def test_time_per_output_token_counts_the_prompts_that_get_between() -> None:
    found = planned(32)
    step = found.service.step_seconds
    assert np.all(found.answer.times.per_token[found.answer.times.per_token > 0] >= step[1] * 0.999)
    assert found.efforts[-1].per_token is not None
    assert found.efforts[-1].per_token.p90 > step[1]


def test_prompts_include_the_chat_template_and_skip_the_shared_prefix() -> None:
    prompt = drawn().prompt[0]
    alone = planned(template_overhead_tokens=32).service
    shared = planned(template_overhead_tokens=32, shared_prefix_tokens=64).service
    uncached = planned(template_overhead_tokens=32, shared_prefix_tokens=64, prefix_caching=False).service
    computed = [round(s.prefill_seconds[0] * s.prefill_tokens_per_second) for s in (alone, shared, uncached)]
    assert computed == [prompt + 32, prompt + 32 - 64, prompt + 32]


def test_first_token_takes_one_step_at_least_however_short_the_prompt() -> None:
    """The weights are read once for a prompt of one token too: 32 GB at 3.35 TB/s are some 14 ms."""
    short = requests(log([2] * 500, thinking=[0] * 500, prompt=[1] * 500), effort("none", 0, 512))
    found = plan_tier(inputs(), short, rate=0.01, objectives=NONE)
    assert isinstance(found, TierCapacity)
    read_once = found.service.least_step_seconds
    assert 0.010 < read_once < 0.020
    assert found.answer.times.first_answer_token.min() >= read_once * (1 - 1e-6)  # of clock times
    assert found.service.alone[0].min() >= read_once


def test_cost_is_gpus_times_price_over_answers() -> None:
    found = planned(8, tensor_parallel_size=2)
    assert found.gpus == 2 * found.answer.replicas
    assert found.cost is not None
    assert found.cost.per_hour == found.gpus * 2.0
    assert found.cost.per_thousand_answers == pytest.approx(found.cost.per_hour / (8 * 3.6))


def test_service_rate_is_that_of_the_sizings_curve_for_the_same_lengths() -> None:
    """The curve knows percentiles only and counts preemptions; the two agree within its lognormal fit."""
    found = planned(8)
    (own,) = [point for point in found.curve if point.derived]
    tokens = found.service.requests_per_second * found.service.mean(found.service.output)
    assert tokens == pytest.approx(own.output_tokens_per_second, rel=0.1)


def test_recorded_arrivals_are_replayed_at_the_rate_asked_for() -> None:
    traffic = Traffic.of(drawn(seconds=True))
    assert traffic.recorded_rate == pytest.approx(2.0, rel=0.1)
    for rate in (0.5, 2.0, 20.0):
        runs = traffic.runs(rate, in_flight=10)
        found = np.mean([(len(run.at) - 1) / (run.at[-1] - run.at[0]) for run in runs])
        assert found == pytest.approx(rate, rel=0.1)
        assert sum(run.counted.sum() for run in runs) >= 2500


def test_hardly_any_requests_of_a_log_are_no_error() -> None:
    (run,) = Traffic.of(drawn(seconds=True)).runs(1e-6, in_flight=10)
    assert run.counted.sum() > 1000


def test_busiest_stretch_of_a_long_log_is_replayed() -> None:
    slow, fast = np.cumsum(np.full(15_000, 10.0)), np.cumsum(np.full(20_000, 0.1))
    seconds = np.concatenate([slow, slow[-1] + fast, slow[-1] + fast[-1] + slow])
    whole = log([100] * len(seconds), thinking=[50] * len(seconds), seconds=seconds)
    assert Traffic.of(requests(whole)).recorded_rate == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize("seconds", [np.zeros(1000), np.arange(20.0)])
def test_times_that_are_no_pattern_give_random_arrivals(seconds: np.ndarray) -> None:
    whole = log([100] * len(seconds), thinking=[50] * len(seconds), seconds=seconds)
    assert Traffic.of(requests(whole)).recorded_rate is None


def test_bursts_of_a_log_take_longer_than_random_arrivals_of_the_same_rate() -> None:
    calm = drawn(4000)
    bursts = np.repeat(np.arange(40.0) * 250, 100)  # 100 at once every 250 s
    found = []
    for seconds in (None, bursts):
        answer = plan_tier(inputs(), replace(calm, seconds=seconds), rate=0.41, objectives=NONE)
        assert isinstance(answer, TierCapacity)
        assert answer.answer.replicas == 1
        assert answer.efforts[-1].first_answer_token is not None
        found.append(answer.efforts[-1].first_answer_token.p90)
    assert found[1] > 1.3 * found[0]


def test_the_same_question_gets_the_same_answer() -> None:
    assert planned(8).efforts == planned(8).efforts


def test_tier_that_does_not_fit_is_the_sizings_answer() -> None:
    found = plan_tier(inputs(accelerator=accelerator("L4-24GB")), drawn(), rate=1, objectives=NONE)
    assert isinstance(found, DoesNotFit)


def test_rate_beyond_the_most_replicas_is_answered_with_the_number() -> None:
    found = planned(50_000)
    assert found.answer.replicas > 1000
    assert not found.kept
