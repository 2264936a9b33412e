"""`plan_tier`: what a tier needs for a request rate, from its requests and the sizing's own answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.capacity.advice import Advice, Reach, advise, reaches
from reasoningpool.capacity.prompts import LongPrompts, long_prompts, with_room_for_prompts
from reasoningpool.requests.distribution import PERCENTILES, weighted_quantiles
from reasoningpool.requests.tier_requests import TierRequests
from reasoningpool.simulation.replica_speed import Service
from reasoningpool.simulation.replicas import MOST_REPLICAS, Answer, Objectives, replicas_for
from reasoningpool.simulation.traffic import Traffic
from reasoningpool.sizing import CurvePoint, DoesNotFit, SizingInput, SizingPlan, plan, throughput_curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """50th, 90th and 99th percentile, in the unit of what they are of."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortTimes:
    """Requests of one effort: lengths in tokens before any cut, times in seconds; `name` is None for all together.

    The times are None where no simulated request had this effort.
    """

    name: str | None
    share: float
    prompt: Percentiles
    thinking: Percentiles
    answer: Percentiles
    queue: Percentiles | None
    first_answer_token: Percentiles | None
    end: Percentiles | None
    per_token: Percentiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money by the stated price; the currency is the price's."""

    per_hour: float
    per_thousand_answers: float
    per_million_output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCapacity:
    """A tier's plan. `rate` is requests per second.

    `sizing` is what the operator derives from the budgets. `service` has fewer slots where prompts exceed them.
    """

    rate: float
    sizing: SizingPlan
    sized_with: SizingInput
    service: Service
    traffic: Traffic
    answer: Answer
    gpus: int
    cost: Cost | None
    efforts: tuple[EffortTimes, ...]  # the last one is all together
    reaches: tuple[Reach, ...]
    curve: tuple[CurvePoint, ...]
    advice: tuple[Advice, ...]
    long_prompts: LongPrompts | None

    def thinking_within(self, seconds: float, percentile: int) -> int:
        """Tokens of thinking that end within so many seconds on an idle replica, behind a prompt of that percentile."""
        weights, share = self.service.weights, percentile / 100
        (prompt,) = weighted_quantiles(self.service.prompt_seconds, weights, (share,))
        return max(0, int((seconds - prompt) / self.service.step_seconds[1]))

    @property
    def kept(self) -> bool:
        """Whether the load is carried by as many replicas as a tier may have, and every objective kept."""
        return self.answer.replicas <= MOST_REPLICAS and all(objective.met for objective in self.answer.objectives)


def plan_tier(
    inputs: SizingInput,
    requests: TierRequests,
    *,
    rate: float,
    objectives: Objectives,
    price_per_gpu_hour: float | None = None,
) -> TierCapacity | DoesNotFit:
    """Size the tier for the lengths it sees, then find the replicas for `rate` requests per second.

    Raises `SizingError` as the sizing does.
    """
    observed = replace(inputs, efforts=requests.observed_efforts())
    sizing = plan(observed)
    if isinstance(sizing, DoesNotFit):
        return sizing
    served = with_room_for_prompts(inputs, requests)
    traffic = Traffic.of(served)
    service = _service(inputs, observed, sizing, traffic)
    answer = replicas_for(service, traffic, rate, objectives)
    on_devices = inputs.accelerator.memory_bytes is not None
    gpus = answer.replicas * inputs.tensor_parallel_size if on_devices else 0
    return TierCapacity(
        rate=rate,
        sizing=sizing,
        sized_with=observed,
        service=service,
        traffic=traffic,
        answer=answer,
        gpus=gpus,
        cost=None if price_per_gpu_hour is None or not gpus else _cost(gpus * price_per_gpu_hour, rate, service),
        efforts=_times(requests, answer),
        reaches=reaches(requests),
        curve=throughput_curve(observed),
        advice=advise(requests, inputs, sizing.max_num_seqs),
        long_prompts=long_prompts(inputs, requests, sizing.max_model_len),
    )


def _service(inputs: SizingInput, observed: SizingInput, sizing: SizingPlan, traffic: Traffic) -> Service:
    """A replica that holds the prompts as they come, not as `promptTokens` has them."""
    if traffic.requests.efforts == inputs.efforts:
        return Service.of(observed, sizing, traffic)
    whole = replace(inputs, efforts=traffic.requests.observed_efforts())
    sized = plan(whole)
    assert isinstance(sized, SizingPlan)  # the room was chosen so that it fits
    return Service.of(whole, sized, traffic)


def _cost(per_hour: float, rate: float, service: Service) -> Cost:
    answers = rate * _SECONDS_PER_HOUR
    return Cost(
        per_hour=per_hour,
        per_thousand_answers=1_000 * per_hour / answers,
        per_million_output_tokens=1_000_000 * per_hour / (answers * service.mean(service.output)),
    )


def _times(requests: TierRequests, answer: Answer) -> tuple[EffortTimes, ...]:
    simulated = requests.effort[answer.times.request]
    rows = [
        _effort_times(requests, answer, effort.name, requests.effort == index, simulated == index)
        for index, effort in enumerate(requests.efforts)
        if (requests.effort == index).any()
    ]
    everything = np.ones(len(requests.effort), dtype=bool), np.ones(len(simulated), dtype=bool)
    return (*rows, _effort_times(requests, answer, None, *everything))


def _effort_times(
    requests: TierRequests, answer: Answer, name: str | None, mine: NDArray[np.bool_], simulated: NDArray[np.bool_]
) -> EffortTimes:
    weights = None if requests.weights is None else requests.weights[mine]

    def lengths(values: NDArray[np.integer]) -> Percentiles:
        p50, p90, p99 = weighted_quantiles(values[mine], weights, PERCENTILES)
        return Percentiles(p50=p50, p90=p90, p99=p99)

    def seconds(values: NDArray[np.float64]) -> Percentiles | None:
        return _seconds(values[simulated])

    times = answer.times
    share = float(np.average(mine, weights=requests.weights))
    return EffortTimes(
        name=name,
        share=share,
        prompt=lengths(requests.prompt),
        thinking=lengths(requests.thinking),
        answer=lengths(requests.answer),
        queue=seconds(times.queue),
        first_answer_token=seconds(times.first_answer_token),
        end=seconds(times.end),
        per_token=seconds(times.per_token),
    )


def _seconds(values: NDArray[np.float64]) -> Percentiles | None:
    if not len(values):
        return None
    p50, p90, p99 = (float(q) for q in np.quantile(values, PERCENTILES))
    return Percentiles(p50=p50, p90=p90, p99=p99)
