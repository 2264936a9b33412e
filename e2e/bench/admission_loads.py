"""Loads for admission: efforts with lengths, what is stated of them, and how they change halfway."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log

from bench.admission_engine import Job


@dataclass(frozen=True, slots=True)
class EffortLoad:
    """Medians and standard deviations of the logarithm; outputs end at the cap."""

    prompt: int
    output: int
    cap: int
    prompt_sigma: float = 0.4
    output_sigma: float = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """`shares` of the efforts' requests and, from the middle on, `later`; `stated` scales what is said of the outputs."""

    name: str
    efforts: Mapping[str, EffortLoad]
    shares: Mapping[str, float]
    later: Mapping[str, float] | None = None
    output_scale_later: float = 1.0
    stated: float = 1.0
    open_rate: float | None = None  # arrivals per second over what the best fixed limit completes; None: closed loop

    def jobs(self, seed: int, count: int) -> Iterator[Job]:
        """So many requests."""
        chance = random.Random(seed)
        for index in range(count):
            late = index >= count // 2
            shares = self.later if late and self.later else self.shares
            (name,) = chance.choices(list(shares), list(shares.values()))
            yield draw(name, self.efforts[name], self.output_scale_later if late else 1.0, chance)

    def expected(self, name: str, points: int = 20) -> tuple[int, ...]:
        """What is stated of an effort's outputs, as equally likely lengths."""
        effort, chance = self.efforts[name], random.Random(0)
        drawn = sorted(draw(name, effort, self.stated, chance).output for _ in range(2000))
        return tuple(drawn[int((i + 0.5) / points * len(drawn))] for i in range(points))


def draw(name: str, effort: EffortLoad, scale: float, chance: random.Random) -> Job:
    prompt = max(1, round(chance.lognormvariate(log(effort.prompt), effort.prompt_sigma)))
    output = round(scale * chance.lognormvariate(log(effort.output), effort.output_sigma))
    return Job(name, min(prompt, 4 * effort.prompt), min(max(1, output), effort.cap), effort.cap)
