"""Loads for admission: efforts with lengths, what is stated of them, and how they change halfway."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import Final

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
    """`shares` of the efforts' requests, from the middle on `later`; `stated` scales what is said of the outputs."""

    name: str
    efforts: Mapping[str, EffortLoad]
    shares: Mapping[str, float]
    later: Mapping[str, float] | None = None
    output_scale_later: float = 1.0
    stated: float = 1.0
    utilisation: float | None = None  # open loop: arrivals over what the best fixed limit completes; None: closed loop

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


# Policies were tuned on other efforts and seeds than these.
_SMALL: Final = {
    "low": EffortLoad(80, 30, 100, 0.5, 0.6),
    "medium": EffortLoad(120, 120, 360, 0.5, 0.5),
    "high": EffortLoad(100, 380, 900, 0.4, 0.45),
}
_LARGE: Final = {
    "low": EffortLoad(300, 100, 400, 0.5, 0.6),
    "medium": EffortLoad(500, 400, 1200, 0.5, 0.5),
    "high": EffortLoad(400, 1300, 3200, 0.4, 0.45),
}
_EVEN: Final = {"low": 1, "medium": 1, "high": 1}
_SHORT: Final = {"low": 5, "medium": 2, "high": 1}
_LONG: Final = {"low": 1, "medium": 2, "high": 4}


def loads(pool_tokens: int) -> list[Load]:
    """What admission is judged on."""
    efforts = _SMALL if pool_tokens < 10_000 else _LARGE
    return [
        Load("steady", efforts, _EVEN),
        Load("steady, open loop", efforts, _EVEN, utilisation=0.95),
        Load("longer from the middle on", efforts, _SHORT, later=_LONG),
        Load("longer from the middle on, open loop", efforts, _SHORT, later=_LONG, utilisation=0.9),
        Load("twice as long as stated", efforts, _EVEN, stated=0.5),
        Load("half as long as stated", efforts, _EVEN, stated=2.0),
    ]
