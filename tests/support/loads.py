"""Loads of many kinds for the simulated scheduler: efforts, distributions, public traces.

They span what a sizing has to bear: long prompts with short outputs (requests wait for room, hardly any is preempted),
short prompts with long outputs (each is preempted many times), outputs of nearly one length and of long tails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from reasoningpool.simulation.loads import classes, lognormal, resampled
from reasoningpool.simulation.scheduler import Draw

TRACES = Path(__file__).parents[1] / "data" / "traces"


def trace(name: str) -> Draw:
    """The requests of a public trace in random order."""
    with np.load(TRACES / f"{name}.npz") as lengths:
        kept = lengths["output"] > 0
        return resampled(lengths["prompt"][kept].astype(int), lengths["output"][kept].astype(int))


LOADS: dict[str, Callable[[], Draw]] = {
    "three efforts, long prompts": lambda: classes((8192, 512, 1), (8192, 1792, 1), (8192, 5120, 1)),
    "three efforts, short prompts": lambda: classes((64, 512, 1), (64, 1792, 1), (64, 5120, 1)),
    "efforts that differ in both": lambda: classes((1000, 500, 1), (1000, 2000, 1), (2000, 4000, 1)),
    "one effort in ten thirty times as long as most": lambda: classes((2000, 300, 6), (2000, 1500, 3), (2000, 9000, 1)),
    "lognormal chat": lambda: lognormal(2000, 0.8, 600, 0.95, 8000),
    "lognormal reasoning": lambda: lognormal(1500, 0.6, 3000, 0.8, 12_000),
    "nearly equal outputs": lambda: lognormal(512, 0.1, 2048, 0.2, 6000),
    "Azure conversations": lambda: trace("azure_llm_2023_conv"),
    "Azure code": lambda: trace("azure_llm_2023_code"),
    "Mooncake conversations": lambda: trace("mooncake_conversation"),
}
