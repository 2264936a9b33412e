"""Request generators for the simulated scheduler: efforts, lognormal lengths, recorded requests drawn anew."""

from __future__ import annotations

import numpy as np

from reasoningpool.simulation.scheduler import Draw


def classes(*efforts: tuple[int, int, float]) -> Draw:
    """Prompt, output and share of each effort."""
    prompts, outputs, shares = (np.array(values) for values in zip(*efforts, strict=True))

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.choice(len(prompts), p=shares / shares.sum(), size=count)
        return prompts[chosen], outputs[chosen]

    return draw


def lognormal(prompt: float, prompt_sigma: float, output: float, output_sigma: float, longest: int) -> Draw:
    """Medians and standard deviations of the logarithm."""

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        prompts, outputs = (
            np.exp(rng.normal(np.log(median), sigma, count))
            for median, sigma in ((prompt, prompt_sigma), (output, output_sigma))
        )
        return np.maximum(1, prompts).astype(int), np.clip(outputs, 1, longest).astype(int)

    return draw


def resampled(prompts: np.ndarray, outputs: np.ndarray) -> Draw:
    """Recorded requests in random order; both arrays have one entry per request, in tokens."""

    def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(0, len(prompts), count)
        return prompts[chosen], outputs[chosen]

    return draw
