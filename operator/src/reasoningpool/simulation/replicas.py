"""How many replicas keep the objectives at a request rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from reasoningpool.requests.distribution import weighted_quantiles
from reasoningpool.simulation.replica_speed import Service, SimulatedTimes, simulate_times
from reasoningpool.simulation.traffic import Traffic

# No plan runs replicas fuller than this: a forecast is never right to the percent, and waiting grows without
# bound towards 1.
MOST_UTILIZATION: Final = 0.85
MOST_REPLICAS: Final = 1_000  # the resource's own bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Seconds that the stated percentile of requests keeps; None: not asked for."""

    first_answer_token_seconds: float | None
    per_token_seconds: float | None
    percentile: int  # 50, 90 or 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective and what comes of it, in seconds.

    `alone` is the figure on an idle replica: no number of replicas gets below it.
    """

    name: str
    wanted: float
    expected: float
    alone: float

    @property
    def met(self) -> bool:
        """Whether the plan keeps it."""
        return self.expected <= self.wanted

    @property
    def reachable(self) -> bool:
        """Whether any number of replicas keeps it."""
        return self.alone <= self.wanted


FIRST_ANSWER: Final = "timeToFirstAnswerTokenSeconds"
PER_TOKEN: Final = "timePerOutputTokenMilliseconds"  # noqa: S105 (no password)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The replicas for a rate, their mean utilization (0 to 1), the times then, and the objectives."""

    replicas: int
    utilization: float
    times: SimulatedTimes
    objectives: tuple[Objective, ...]
    by_load: int  # replicas that the load alone needs
    enough: bool  # False: even the most replicas the resource allows do not keep the objectives that can be kept


def replicas_for(service: Service, traffic: Traffic, rate: float, objectives: Objectives) -> Answer:
    """The fewest replicas with at most 85 % utilization that keep every objective that can be kept at all."""
    least = max(1, ceil(rate / (service.requests_per_second * MOST_UTILIZATION) - 1e-9))

    def answer(replicas: int) -> Answer:
        times = simulate_times(service, traffic, rate=rate, replicas=replicas)
        checked = _checked(service, times, objectives)
        return Answer(
            replicas=replicas,
            utilization=rate / (replicas * service.requests_per_second),
            times=times,
            objectives=checked,
            by_load=least,
            enough=all(objective.met or not objective.reachable for objective in checked),
        )

    if least > MOST_REPLICAS:
        return answer(least)
    return _fewest(answer, least)


def _fewest(answer: Callable[[int], Answer], least: int) -> Answer:
    """Doubling steps up from `least`, then bisection between the last that fails and the first that keeps them."""
    failing, step = least - 1, 1
    while not (found := answer(least)).enough:
        if least == MOST_REPLICAS:
            return found
        failing, least, step = least, min(MOST_REPLICAS, least + step), 2 * step
    while least - failing > 1:
        middle = (least + failing) // 2
        tried = answer(middle)
        if tried.enough:
            least, found = middle, tried
        else:
            failing = middle
    return found


def _checked(service: Service, times: SimulatedTimes, wanted: Objectives) -> tuple[Objective, ...]:
    share = wanted.percentile / 100
    first_alone, step_alone = service.alone
    found = []
    if wanted.first_answer_token_seconds is not None:
        found.append(
            Objective(
                name=FIRST_ANSWER,
                wanted=wanted.first_answer_token_seconds,
                expected=float(np.quantile(times.first_answer_token, share)),
                alone=weighted_quantiles(first_alone, service.weights, (share,))[0],
            )
        )
    if wanted.per_token_seconds is not None:
        found.append(
            Objective(
                name=PER_TOKEN,
                wanted=wanted.per_token_seconds,
                expected=float(np.quantile(times.per_token, share)),
                alone=step_alone,
            )
        )
    return tuple(found)
