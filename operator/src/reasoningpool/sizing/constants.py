"""Calibrated constants of the memory and time model: the one place they live, each with its evidence.

`value` is the safe end, which the plan uses (more memory, more time); `central` is the likeliest figure, which
`explain` shows beside it; `low` and `high` bound what was observed or is believed. Ids such as kv050 are rows of the
public start-up observations; how the constants were found and checked is in docs/sizing.md. Typed Python rather
than a data file in another language: the values are checked by mypy and read without parsing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Constant:
    """A calibrated figure: `value` at the safe end, `central` the likeliest (the same where nothing is known)."""

    value: float
    unit: str
    low: float
    high: float
    source: str
    likeliest: float | None = None

    @property
    def central(self) -> float:
        """The likeliest figure."""
        return self.value if self.likeliest is None else self.likeliest

    @property
    def rows(self) -> frozenset[str]:
        """Ids of the observed start-ups that the constant was read from."""
        return frozenset(re.findall(r"\bkv\d{3}\b", self.source))


# vLLM versions between which the memory equation differs.
FIRST_COMPILED: Final = (0, 8, 0)  # V1 engine by default: compiled forward pass
FIRST_SNAPSHOT_AFTER_NCCL: Final = (0, 11, 0)  # the free memory is measured after the communicators exist
FIRST_EXPERT_WORKSPACE: Final = (0, 13, 0)  # the experts' buffers outlive the forward pass (v1/worker/workspace.py)
FIRST_WITHOUT_SORT: Final = (0, 17, 0)  # top-k and top-p without sorting the vocabulary (vllm-project/vllm#33538)
FIRST_GRAPHS_COUNTED: Final = (0, 21, 0)  # the engine's own message: "enabled (default since v0.21.0)"
FIRST_SECOND_RUNNER: Final = (0, 25, 0)  # Model Runner V2 for dense models (#44443, merged 2026-07-02)
FIRST_SECOND_RUNNER_GRAPHS: Final = (0, 28, 0)  # it estimates its graphs; kv209 (0.26) prints none
FIRST_SECOND_RUNNER_ALL: Final = (0, 32, 0)  # and for all: 0.32's `use_v2_model_runner` leaves out no architecture

SAMPLER_SORT: Final = Constant(
    9.7, "x max_num_seqs x vocabulary x 4 bytes, versions that sort (before 0.17)", 9.55, 9.66,
    "peak activation less the kept hidden states: kv044 9.56, kv050 9.57, kv051 9.60, kv046 9.64, kv062 9.57, "
    "kv069 9.55 (0.10 to 0.11), kv096 9.59, kv092 9.62 (V0); by parts 9.5: logits in 16 and 32 bit 1.5, sorted values "
    "and indices 3, unsorted indices 2, the sort's second buffers 3",
    9.57,
)  # fmt: skip
SAMPLER_KERNEL: Final = Constant(
    3.5, "x max_num_seqs x vocabulary x 4 bytes, versions 0.17 to 0.31 on Model Runner V1", 2.5, 3.5,
    "kv102 2.45 (2.4 GiB at 1,024 sequences); read in 0.32: 16-bit logits, 32-bit logits, probabilities, and noise "
    "in the native path",
    2.5,
)  # fmt: skip
SAMPLER_SECOND_RUNNER: Final = Constant(
    3.5, "x max_num_seqs x vocabulary x 4 bytes, Model Runner V2", 0.5, 3.5,
    "read in 0.32 (v1/worker/gpu): the profile run samples from the 16-bit logits, no observation; the safe end is "
    "that of Model Runner V1, which the engine falls back to for features the new one lacks",
    0.5,
)  # fmt: skip
FORWARD_INNER_COPIES: Final = Constant(
    3.0, "x max_num_batched_tokens x feed-forward width per rank x 2 bytes", 3.0, 3.0,
    "gate and up in one buffer, then their product; kv101: 16,384 x (3 x 14,336 + 4,096) x 2 bytes is the 1.44 GiB "
    "it printed",
)  # fmt: skip
FORWARD_HIDDEN_COPIES: Final = Constant(
    2.0, "x max_num_batched_tokens x hidden size x 2 bytes, compiled", 1.0, 2.0, "kv101: 1.0 (the residual)", 1.0
)
FORWARD_HIDDEN_COPIES_EAGER: Final = Constant(
    6.0, "x max_num_batched_tokens x hidden size x 2 bytes, not compiled", 5.0, 6.0,
    "kv004 5.7 (V0, the rank without sampler: 0.19 GiB at 2,048 tokens)", 5.7,
)  # fmt: skip
ENCODER_COPIES: Final = Constant(
    1.25, "x what passes the tower's widest layer for the largest image", 0.9, 1.25,
    "kv201 1.0 (Qwen3.5-9B, one image of 16,384 tokens: 1.9 GiB); how many copies a kernel keeps differs", 1.0,
)  # fmt: skip
GRAPH_BYTES_PER_LAYER_AND_SIZE: Final = Constant(
    0.5 * MIB, "bytes", 0.28 * MIB, 0.49 * MIB,
    "the engine's estimate over layers and captured sizes: kv024 0.29 (0.52 GiB), kv102 0.49 MiB (1.55 GiB)",
    0.35 * MIB,
)  # fmt: skip
NON_TORCH_BYTES: Final = Constant(
    0.26 * GIB, "bytes", 0.01 * GIB, 0.27 * GIB,
    "non-torch memory at one GPU: kv044, kv050 0.13, kv051 0.14 (H100); kv096 0.01, kv079 0.06, kv093 0.09, "
    "kv094 0.12, kv092 0.26, kv108 0.27 GiB",
    0.13 * GIB,
)  # fmt: skip
COMMUNICATION_BYTES: Final = Constant(
    0.6 * GIB, "bytes, several GPUs joined by NVLink", 0.42 * GIB, 0.6 * GIB,
    "non-torch memory beyond one GPU's: kv046 0.42 GiB at 2 GPUs (0.11 or later)", 0.42 * GIB,
)  # fmt: skip
COMMUNICATOR_BYTES: Final = Constant(
    0.95 * GIB, "bytes more before 0.11, where communicators were counted", 0.8 * GIB, 0.95 * GIB,
    "kv062: 1.38 GiB at 2 GPUs (0.10.2), less the above; kv046 shows 0.93 GiB taken before the engine measures",
    0.83 * GIB,
)  # fmt: skip
COMMUNICATION_BYTES_PCIE: Final = Constant(
    0.3 * GIB, "bytes, several GPUs without NVLink", 0.08 * GIB, 0.3 * GIB,
    "kv069 0.21 GiB at 8 GPUs, kv004 0.25 GiB at 2; custom all-reduce is off there", 0.12 * GIB,
)  # fmt: skip
NEWER_ENGINE_BYTES: Final = Constant(
    0.4 * GIB, "bytes, engines since 0.21", 0.0, 0.4 * GIB,
    "few start-ups of these engines are among the observations (kv102, kv024; neither shows more); the size is that of "
    "FlashInfer's workspace, 394 MiB", 0.0,
)  # fmt: skip
WEIGHT_SHARE: Final = Constant(
    0.003, "of the weights per GPU", 0.0, 0.007,
    "logged over predicted weights of 16-bit and FP8 checkpoints (kv004, kv044, kv046, kv050, kv051, kv062, kv066, "
    "kv201, kv209, kv215); allocation is in 2 MiB steps and whole tensors", 0.0,
)  # fmt: skip
WEIGHT_SHARE_4BIT: Final = Constant(
    0.03, "of the weights per GPU, 4-bit checkpoints", -0.004, 0.048,
    "logged over predicted: kv092 -0.4, kv079 1.8, kv122 3.6, kv107 4.8 %; what stays in 16 bit differs by tool",
    0.0,
)  # fmt: skip
DEVICE_SHARE: Final = Constant(
    0.0015, "of the device's memory", 0.0, 0.002,
    "spread of totals printed for one product: A100-SXM-80GB 79.14 to 79.25, H100-SXM 79.10 to 79.19 GiB", 0.0,
)  # fmt: skip
DRIVER_BYTES: Final = Constant(
    0.62 * GIB, "bytes taken before the engine measures", 0.49 * GIB, 0.62 * GIB,
    "total minus free: kv022 0.6, kv044 0.61, kv062 0.6, kv069 0.49 GiB",
)  # fmt: skip

BANDWIDTH_SHARE: Final = Constant(0.7, "of the memory bandwidth", 0.5, 0.85, "reasoned; no GPU was measured")
STEP_SECONDS_FIXED: Final = Constant(0.002, "seconds per step", 0.0005, 0.005, "reasoned; no GPU was measured")
ALL_REDUCE_SECONDS: Final = Constant(20e-6, "seconds per layer and reduction, two per layer", 8e-6, 60e-6, "reasoned")
CPU_TIME_PER_OUTPUT_TOKEN_MS: Final = 100.0  # stand-in: a CPU serves tests, not load
UNKNOWN_TIME_PER_OUTPUT_TOKEN_MS: Final = 50.0  # a custom accelerator without a stated bandwidth
# Dense 16-bit tensor operations per byte of memory bandwidth, by compute capability: data-sheet figures of A100-80GB
# (312 TFLOP/s, 2.0 TB/s), A10 (125, 0.6), L4 (121, 0.3), H100 and H200 (989, 3.35 and 4.8), B200 (2,250, 8); from
# general knowledge, no data sheet was read. Products of one capability differ by up to 1.5 times.
FLOP_PER_BYTE: Final = {(8, 0): 155.0, (8, 6): 205.0, (8, 9): 400.0, (9, 0): 250.0, (10, 0): 280.0, (10, 3): 280.0}
FLOP_PER_BYTE_OTHER: Final = 200.0
FP8_FROM_CAPABILITY: Final = (
    8,
    9,
)  # Ada; below it kernels refuse e4m3 and nothing multiplies in FP8 (field report S06)
COMPUTE_SHARE: Final = Constant(0.5, "of the dense tensor rate in prefill", 0.3, 0.7, "reasoned; no GPU was measured")
CPU_PREFILL_TOKENS_PER_S: Final = 1_000.0  # stand-in: a CPU serves tests, not load
UNKNOWN_PREFILL_TOKENS_PER_S: Final = 5_000.0  # a custom accelerator without a stated bandwidth
# Requests preempted more than once, fitted to 153 runs of the simulated scheduler (14 mixes, 16 to 64 sequences; the
# benchmark `preemption-calibration`); 0.10 to 0.15 fit alike.
REPEAT_BY_GROWTH: Final = Constant(
    0.13, "x length-biased growth over what a victim holds", 0.1, 0.2, "docs/sizing-concurrency.md"
)
REPEAT_BY_LOAD: Final = Constant(0.5, "x preemptions per request", 0.4, 0.6, "docs/sizing-concurrency.md")
PREEMPTED_SHARE_SEEN: Final = (0.5, 1.6)  # simulated over expected, outermost 5th and 95th percentile (preemption-link)
# Below this, thinking is usually cut in the middle of a thought (field report U05).
LEAST_THINKING_TOKENS: Final = 1_024
DRAIN_MARGIN_S: Final = 10  # prefill of a request admitted just before the signal
MIN_SHUTDOWN_TIMEOUT_S: Final = 15
GRACE_MARGIN_S: Final = 15  # between shutdown timeout and the kill

LOAD_BANDWIDTH_BYTES_PER_S: Final = 250e6  # 2 Gbit/s, a slow hub download; stated by the user where known
LOAD_MARGIN: Final = 1.5
STARTUP_FIXED_S: Final = 300  # imports, compilation, graph capture
STARTUP_FLOOR_S: Final = 600

# vLLM 0.33's own defaults by device class (engine/arg_utils.py), API server usage.
UTILIZATION_PERCENT_BOUNDS: Final = (10, 98)  # what the resource takes
DEFAULT_UTILIZATION_PERCENT: Final = 92  # vLLM's own --gpu-memory-utilization since 0.21
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
