"""What one replica does for a request, and how long requests take at a given number of replicas.

Times are estimates of the bandwidth and compute models in `sizing.latency`: no GPU was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from reasoningpool.simulation.queueing import Arrivals, simulate
from reasoningpool.simulation.traffic import Traffic
from reasoningpool.sizing import SizingInput, SizingPlan, throughput_curve
from reasoningpool.sizing.latency import least_step_seconds, prefill_tokens_per_second

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reasoningpool.requests.log import Floats

_MOST_REPLICAS_SIMULATED: Final = 8
_MOST_SLOTS_SIMULATED: Final = 512
_GRID: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Times of one replica: seconds per token with n running (index n), and of each request's prompt.

    `prefill_seconds` is the compute that a prompt takes from the replica. `least_step_seconds` is the shortest step,
    which a short prompt waits for too; the requests that decode share that step, so it takes nothing from the load.
    """

    slots: int
    step_seconds: tuple[float, ...]
    prefill_tokens_per_second: float
    prefill_seconds: Floats
    least_step_seconds: float
    thinking: NDArray[np.integer]
    output: NDArray[np.integer]
    weights: Floats | None

    @classmethod
    def of(cls, inputs: SizingInput, plan: SizingPlan, traffic: Traffic) -> Service:
        """The replica that the sizing planned, serving these requests."""
        requests = traffic.requests
        thinking, answer = requests.served
        rate = prefill_tokens_per_second(inputs)
        cached = inputs.shared_prefix_tokens if inputs.prefix_caching else 0
        computed = np.maximum(requests.served_prompt + inputs.template_overhead_tokens - cached, 1)
        return cls(
            slots=plan.max_num_seqs,
            step_seconds=_step_seconds(inputs, plan.max_num_seqs),
            prefill_tokens_per_second=rate,
            prefill_seconds=computed / rate,
            least_step_seconds=least_step_seconds(inputs),
            thinking=thinking,
            output=thinking + answer,
            weights=requests.weights,
        )

    @property
    def requests_per_second(self) -> float:
        """Most requests one replica ends per second: `1 / (E[prefill] + E[output] * step(N) / N)`."""
        decode = self.mean(self.output) * self.step_seconds[self.slots] / self.slots
        return 1 / (self.mean(self.prefill_seconds) + decode)

    def mean(self, values: NDArray[np.integer] | Floats) -> float:
        """Mean over requests."""
        return float(np.average(values, weights=self.weights))

    @property
    def prompt_seconds(self) -> Floats:
        """Seconds from admission to the first token of every request on an idle replica: one step at least."""
        return np.maximum(self.prefill_seconds, self.least_step_seconds)

    @property
    def alone(self) -> tuple[Floats, float]:
        """Seconds to the first answer token of every request on an idle replica, and seconds per token there."""
        step = self.step_seconds[1]
        return self.prompt_seconds + self.thinking * step, step


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTimes:
    """Simulated times in seconds, one entry per request that counts."""

    request: NDArray[np.intp]
    queue: Floats
    first_answer_token: Floats
    end: Floats
    per_token: Floats

    def __len__(self) -> int:
        return len(self.request)


def simulate_times(service: Service, traffic: Traffic, *, rate: float, replicas: int) -> SimulatedTimes:
    """Times with so many replicas at this rate. Of many replicas a few are simulated with their share of the load."""
    group = max(1, min(replicas, _MOST_REPLICAS_SIMULATED, _MOST_SLOTS_SIMULATED // service.slots))
    parts = []
    for run in traffic.runs(rate * group / replicas, in_flight=group * service.slots):
        arrivals = Arrivals(
            at=run.at.tolist(),
            prefill_seconds=service.prefill_seconds[run.request].tolist(),
            thinking=service.thinking[run.request].tolist(),
            output=service.output[run.request].tolist(),
        )
        times = simulate(arrivals, replicas=group, slots=service.slots, step_seconds=service.step_seconds)
        kept = run.counted
        rest_of_step = (service.prompt_seconds - service.prefill_seconds)[run.request[kept]]
        parts.append(
            (
                run.request[kept],
                times.queue[kept],
                times.first_answer_token[kept] + rest_of_step,
                times.end[kept] + rest_of_step,
                times.per_token[kept],
            )
        )
    request, queue, first, end, per_token = (np.concatenate(column) for column in zip(*parts, strict=True))
    return SimulatedTimes(request=request, queue=queue, first_answer_token=first, end=end, per_token=per_token)


def _step_seconds(inputs: SizingInput, slots: int) -> tuple[float, ...]:
    """Seconds per token by number running, from the sizing's own curve, straight between its points."""
    grid = sorted({*range(1, min(slots, 8) + 1), *np.unique(np.linspace(1, slots, _GRID).astype(int)).tolist()})
    points = throughput_curve(inputs, grid)
    running = np.array([point.running for point in points])
    seconds = np.array([point.time_per_output_token_ms for point in points]) / 1000
    between = np.interp(np.arange(1, slots + 1), running, seconds)
    return (0.0, *np.maximum.accumulate(between).tolist())
