"""Calibrated constants of the memory and time model: value in use, unit, evidence, and what was seen.

`value` is the safe end of what was observed (more memory, more time). The ids in the evidence are rows
of the public start-up observations the project collects; the figures are their authors'. This is a first
set: the memory constants were read off single rows, not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Constant:
    """A calibrated figure. `low` and `high` bound what was observed or is believed."""

    value: float
    unit: str
    low: float
    high: float
    source: str


SAMPLER_BYTES_FACTOR: Final = Constant(
    10.0, "x max_num_seqs x vocabulary x 4 bytes", 9.6, 9.9,
    "peak activation of kv044, kv046, kv050, kv051 (1,024 sequences, three vocabularies), kv069, kv092, kv096 (256)",
)  # fmt: skip
FORWARD_HIDDEN_COPIES: Final = Constant(
    8.0, "x max_num_batched_tokens x hidden size x 2 bytes", 4.0, 12.0,
    "residual, normalised input, projections; reasoned, no row isolates it",
)  # fmt: skip
FORWARD_INNER_COPIES: Final = Constant(
    3.0, "x max_num_batched_tokens x feed-forward width per rank x 2 bytes", 2.0, 3.0,
    "gate and up in one buffer, then their product; reasoned, no row isolates it",
)  # fmt: skip
GRAPH_BYTES_PER_LAYER_AND_SIZE: Final = Constant(
    0.5 * MIB, "bytes", 0.02 * MIB, 0.95 * MIB,
    "graph memory over layers and captured sizes: kv069 0.56, kv066 0.95 (0.9.2), kv102 estimate 0.48, kv050 0.06 MiB",
)  # fmt: skip
GRAPH_BYTES_FIXED: Final = Constant(
    128 * MIB, "bytes", 0, 256 * MIB, "smallest graph memory seen: kv050 0.1, kv101 0.23 GiB"
)
NON_TORCH_BYTES: Final = Constant(
    0.25 * GIB, "bytes", 0.01 * GIB, 0.27 * GIB, "non-torch memory at one GPU: kv044 0.13, kv092 0.26, kv108 0.27 GiB"
)
COMMUNICATION_BYTES: Final = Constant(
    0.75 * GIB,
    "bytes, more than one GPU",
    0.21 * GIB,
    1.38 * GIB,
    "non-torch memory: kv046 0.55, kv062 1.38, kv069 0.21 GiB",
)
COMMUNICATION_BYTES_PER_RANK: Final = Constant(0.05 * GIB, "bytes per GPU of a replica", 0, 0.1 * GIB, "reasoned")
OVERHEAD_FLOOR_BYTES: Final = Constant(
    2.3 * GIB,
    "bytes beside weights and KV",
    1.0 * GIB,
    2.3 * GIB,
    "kaito-project/kaito#2132: fixed part of its reserve",
)
OVERHEAD_PER_WEIGHT: Final = Constant(
    0.05, "of the weights per GPU", 0.0, 0.06, "kaito-project/kaito#2139: about 5.5 GiB at 60 GiB of weights per GPU"
)
SAFETY_SHARE: Final = Constant(
    0.01, "of the device's memory", 0.0, 0.02, "spread of reported device sizes within a product"
)
DRIVER_BYTES: Final = Constant(
    0.62 * GIB,
    "bytes taken before the engine measures",
    0.49 * GIB,
    0.62 * GIB,
    "total minus free: kv022 0.6, kv044 0.61, kv062 0.6, kv069 0.49 GiB",
)

BANDWIDTH_SHARE: Final = Constant(0.7, "of the memory bandwidth", 0.5, 0.85, "reasoned; no GPU was measured")
STEP_SECONDS_FIXED: Final = Constant(0.002, "seconds per step", 0.0005, 0.005, "reasoned; no GPU was measured")
ALL_REDUCE_SECONDS: Final = Constant(20e-6, "seconds per layer and reduction, two per layer", 8e-6, 60e-6, "reasoned")
CPU_TIME_PER_OUTPUT_TOKEN_MS: Final = 100.0  # design 2.3
UNKNOWN_TIME_PER_OUTPUT_TOKEN_MS: Final = 50.0  # a custom accelerator without a stated bandwidth
DRAIN_MARGIN_S: Final = 10  # prefill of a request admitted just before the signal
MIN_SHUTDOWN_TIMEOUT_S: Final = 15
GRACE_MARGIN_S: Final = 15  # design 2.3: between shutdown timeout and the kill

LOAD_BANDWIDTH_BYTES_PER_S: Final = 250e6  # 2 Gbit/s, a slow hub download; stated by the user where known
LOAD_MARGIN: Final = 1.5
STARTUP_FIXED_S: Final = 300  # imports, compilation, graph capture
STARTUP_FLOOR_S: Final = 600

# vLLM 0.33's own defaults by device class (engine/arg_utils.py), API server usage.
BATCHED_TOKENS_LARGEST: Final = 16_384  # from 160 GiB
BATCHED_TOKENS_LARGE: Final = 8_192  # from 70 GiB, not Ampere
BATCHED_TOKENS_OTHER: Final = 2_048  # also the CPU, times the world size
LARGEST_CLASS_BYTES: Final = 160 * GIB
LARGE_CLASS_BYTES: Final = 70 * GIB
MAX_NUM_SEQS_LARGE: Final = 1_024
MAX_NUM_SEQS_OTHER: Final = 256
MAX_NUM_SEQS_HYBRID: Final = 512  # vllm-project/recipes#551: 856 state blocks on one H100, 1,024 refused
BATCHES_IN_FLIGHT: Final = 2  # async scheduling; 1 on CPU
MAX_CAPTURED_SIZE: Final = 512
