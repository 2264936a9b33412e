"""The memory equation and its parts."""

import pytest

from reasoningpool.sizing import constants as c
from reasoningpool.sizing.memory import (
    activation_bytes,
    captured_sizes,
    graph_bytes,
    memory_shares,
    overhead_bytes,
    requested_bytes,
    sampler_bytes,
    weight_bytes_per_gpu,
)
from unit.sizing.builders import CPU, GIB, accelerator, custom_gpu, geometry, sizing_input

# Peak activation printed by servers that ran with their default number of sequences, in GiB.
PEAKS = [
    ("kv050", "Qwen/Qwen3-8B", 1024, 5.56),
    ("kv051", "Qwen/Qwen3-32B", 1024, 5.64),
    ("kv044", "openai/gpt-oss-20b", 1024, 7.38),
    ("kv046", "meta-llama/Llama-3.3-70B-Instruct", 1024, 4.84),
    ("kv069", "Qwen/Qwen3-235B-A22B", 256, 1.40),
]


@pytest.mark.parametrize(("row", "model", "sequences", "observed_gib"), PEAKS)
def test_sampler_peak_covers_what_servers_printed_and_little_more(
    row: str, model: str, sequences: int, observed_gib: float
) -> None:
    peak = sampler_bytes(geometry(model).vocab_size, sequences) / GIB
    assert observed_gib <= peak <= 1.06 * observed_gib, row


def test_activation_is_the_larger_of_forward_pass_and_sampler() -> None:
    found = geometry("Qwen/Qwen3-32B")
    few, many = (activation_bytes(found, tensor_parallel=1, batched_tokens=8192, sequences=n) for n in (16, 1024))
    assert few == 8192 * 2 * (8 * 5120 + 3 * 25600)
    assert many == 8192 * 5120 * 2 + sampler_bytes(151_936, 1024)


def test_activation_of_the_feed_forward_part_is_split_over_ranks() -> None:
    found = geometry("Qwen/Qwen3-32B")
    one, four = (activation_bytes(found, tensor_parallel=n, batched_tokens=8192, sequences=1) for n in (1, 4))
    assert one - four == 8192 * 2 * 3 * (25600 - 6400)


@pytest.mark.parametrize(("sequences", "sizes"), [(1, 2), (2, 3), (4, 4), (27, 9), (128, 35), (256, 51), (1024, 51)])
def test_captured_sizes(sequences: int, sizes: int) -> None:
    """1, 2, 4, 8, 16 ... 256, 272 ... 512, up to twice the sequences."""
    listed = [s for s in (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)) if s <= min(2 * sequences, 512)]
    assert captured_sizes(sequences) == len(listed) == sizes


def test_graphs_take_nothing_in_eager_mode() -> None:
    found = geometry("Qwen/Qwen3-8B")
    assert graph_bytes(found, sequences=32, enforce_eager=True) == 0
    assert graph_bytes(found, sequences=32, enforce_eager=False) > 0.1 * GIB


def test_more_than_one_gpu_needs_communication_buffers() -> None:
    assert overhead_bytes(1) == GIB // 4
    assert overhead_bytes(2) > GIB
    assert overhead_bytes(8) > overhead_bytes(2)


def test_requested_memory_is_rounded_up() -> None:
    assert requested_bytes(1001, 920) == 921


def test_a_stated_checkpoint_size_scales_the_estimate() -> None:
    found = geometry("Qwen/Qwen3-32B-FP8")
    estimate = weight_bytes_per_gpu(found, None, 2)
    stated = weight_bytes_per_gpu(found, 2 * found.weights.bytes_total(found.weight_format), 2)
    assert stated == pytest.approx(2 * estimate, rel=1e-9)


def test_the_shares_add_up_to_what_the_engine_asks_for() -> None:
    shares = memory_shares(sizing_input(), batched_tokens=8192, sequences=27)
    assert shares.requested == -(-accelerator("H100-SXM-80GB").memory_bytes * 920 // 1000)  # type: ignore[operator]
    assert shares.pool + shares.beside_kv == shares.requested
    assert shares.reserve >= 0.01 * 79 * GIB


@pytest.mark.parametrize(("tokens", "sequences"), [(2048, 1), (8192, 27), (8192, 1024), (16_384, 64)])
def test_more_sequences_or_larger_batches_never_leave_more(tokens: int, sequences: int) -> None:
    pool = memory_shares(sizing_input(), batched_tokens=tokens, sequences=sequences).pool
    assert memory_shares(sizing_input(), batched_tokens=tokens, sequences=2 * sequences).pool <= pool
    assert memory_shares(sizing_input(), batched_tokens=2 * tokens, sequences=sequences).pool <= pool


def test_the_cpu_has_its_stated_pool_and_no_model() -> None:
    shares = memory_shares(
        sizing_input(accelerator=CPU, kv_cache_memory_bytes=64 << 20), batched_tokens=2048, sequences=8
    )
    assert shares.pool == 64 << 20
    assert (shares.activation, shares.graphs, shares.overhead, shares.reserve) == (0, 0, 0, 0)


def test_a_stated_pool_is_taken_as_it_is() -> None:
    stated = 5 * GIB + 1
    shares = memory_shares(sizing_input(kv_cache_memory_bytes=stated), batched_tokens=8192, sequences=27)
    assert shares.pool == stated


def test_observed_start_ups_are_not_promised_more_kv_than_they_had() -> None:
    """Qwen3-0.6B-size sampler and weights of kv044, kv051 at 90 %: predicted KV stays below the printed one."""
    for model, observed_gib in (("openai/gpt-oss-20b", 50.28), ("Qwen/Qwen3-32B", 4.45)):
        changes = sizing_input(geometry=geometry(model), memory_utilization_permille=900)
        pool = memory_shares(changes, batched_tokens=8192, sequences=1024).pool / GIB
        assert observed_gib - 3 < pool < observed_gib + 0.02 * 79.18, model


@pytest.mark.parametrize(("gib", "weights_gib"), [(24, 10), (94, 60)])
def test_constants_bound_their_values(gib: float, weights_gib: float) -> None:
    del weights_gib
    assert custom_gpu(gib).memory_bytes == int(gib * GIB)
    for constant in (getattr(c, name) for name in dir(c)):
        if isinstance(constant, c.Constant):
            assert constant.low <= constant.high
            assert constant.value >= constant.low
            assert constant.source
