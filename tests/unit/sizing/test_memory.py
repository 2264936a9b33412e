"""The memory equation and its parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.catalog import accelerators
from reasoningpool.sizing import constants as c
from reasoningpool.sizing.memory import (
    Range,
    activation_bytes,
    captured_sizes,
    forward_bytes,
    graph_bytes,
    memory_shares,
    overhead_bytes,
    requested_bytes,
    sampler_bytes,
    weight_bytes_per_gpu,
)
from unit.sizing.builders import CPU, GIB, accelerator, custom_gpu, geometry, sizing_input

V0 = (0, 7, 3)
SORTING = (0, 11, 0)
KERNEL = (0, 20, 0)
NEWEST = None
VERSIONS = (V0, SORTING, KERNEL, NEWEST)
MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b", "Qwen/Qwen3-Next-80B-A3B-Thinking")

# Peak activation printed by servers that ran with their default number of sequences, in GiB.
PEAKS = [
    ("kv050", "Qwen/Qwen3-8B", 1024, 5.56),
    ("kv051", "Qwen/Qwen3-32B", 1024, 5.64),
    ("kv044", "openai/gpt-oss-20b", 1024, 7.38),
    ("kv046", "meta-llama/Llama-3.3-70B-Instruct", 1024, 4.84),
    ("kv062", "Qwen/Qwen3-Next-80B-A3B-Instruct", 1024, 5.58),
]


@pytest.mark.parametrize(("row", "model", "sequences", "observed_gib"), PEAKS)
def test_activation_peak_of_sorting_engines_is_what_servers_printed(
    row: str, model: str, sequences: int, observed_gib: float
) -> None:
    peak = activation_bytes(
        geometry(model), tensor_parallel=1, batched_tokens=8192, sequences=sequences, version=SORTING
    )
    assert peak.central / GIB == pytest.approx(observed_gib, rel=0.02), row
    assert observed_gib <= 1.005 * peak.safe / GIB, row


def test_a_sorting_sampler_of_256_sequences_is_what_a_server_printed() -> None:
    peak = activation_bytes(
        geometry("Qwen/Qwen3-235B-A22B"), tensor_parallel=8, batched_tokens=2048, sequences=256, version=SORTING
    )
    assert peak.central / GIB == pytest.approx(1.40, abs=0.01)  # kv069


def test_forward_peak_without_the_sampler_is_what_servers_printed() -> None:
    """kv101 (16,384 tokens of a Llama-3.1-8B, compiled) and a rank of kv004 that does not sample (2,048 tokens, V0)."""
    compiled = forward_bytes(
        geometry("meta-llama/Llama-3.1-8B-Instruct"), tensor_parallel=1, batched_tokens=16_384, compiled=True
    )
    assert compiled.central / GIB == pytest.approx(1.44, abs=0.01)
    eager = 2048 * 2 * (3 * 13_824 / 2 + c.FORWARD_HIDDEN_COPIES_EAGER.central * 5120)
    assert eager / GIB == pytest.approx(0.19, abs=0.005)


@pytest.mark.parametrize("model", MODELS)
def test_newer_engines_sample_in_less_memory(model: str) -> None:
    peaks = [sampler_bytes(geometry(model), 256, version) for version in (SORTING, KERNEL, NEWEST)]
    assert peaks[0].central > peaks[1].central > peaks[2].central
    assert peaks[0].safe > peaks[1].safe >= peaks[2].safe


def test_activation_is_the_larger_of_forward_pass_and_sampler() -> None:
    found = geometry("Qwen/Qwen3-32B")
    few, many = (
        activation_bytes(found, tensor_parallel=1, batched_tokens=8192, sequences=n, version=SORTING)
        for n in (16, 1024)
    )
    assert few.central == 8192 * 2 * (5120 + 3 * 25600)
    assert many.central == 8192 * 5120 * 2 + sampler_bytes(found, 1024, SORTING).central


def test_activation_of_the_feed_forward_part_is_split_over_ranks() -> None:
    found = geometry("Qwen/Qwen3-32B")
    one, four = (activation_bytes(found, tensor_parallel=n, batched_tokens=8192, sequences=1) for n in (1, 4))
    assert one.central - four.central == 8192 * 2 * 3 * (25600 - 6400)


def test_routed_experts_work_on_one_copy_of_a_token_per_chosen_expert() -> None:
    found = geometry("Qwen/Qwen3-30B-A3B")  # 8 of 128 experts, 768 wide, hidden size 2,048
    peak = forward_bytes(found, tensor_parallel=1, batched_tokens=8192, compiled=True)
    assert peak.central == 8192 * 2 * (8 * 2048 + 8 * 768 + 2048)


@pytest.mark.parametrize(("sequences", "sizes"), [(1, 2), (2, 3), (4, 4), (27, 9), (128, 35), (256, 51), (1024, 51)])
def test_captured_sizes(sequences: int, sizes: int) -> None:
    """1, 2, 4, 8, 16 ... 256, 272 ... 512, up to twice the sequences."""
    listed = [s for s in (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)) if s <= min(2 * sequences, 512)]
    assert captured_sizes(sequences) == len(listed) == sizes


def test_graphs_are_counted_since_0_21_and_not_in_eager_mode() -> None:
    found = geometry("Qwen/Qwen3-8B")
    assert graph_bytes(found, sequences=32, enforce_eager=True) == Range(0, 0)
    assert graph_bytes(found, sequences=32, enforce_eager=False, version=(0, 20, 2)) == Range(0, 0)
    counted = graph_bytes(found, sequences=256, enforce_eager=False, version=(0, 21, 0))
    assert counted == graph_bytes(found, sequences=256, enforce_eager=False)
    assert counted.central < 0.7 * GIB
    assert counted.safe > 0.52 * GIB  # kv024


def test_more_than_one_gpu_needs_communication_buffers() -> None:
    alone, joined, older, cards = (
        overhead_bytes(1, (9, 0)),
        overhead_bytes(2, (9, 0)),
        overhead_bytes(2, (9, 0), (0, 10, 2)),
        overhead_bytes(2, (8, 9)),
    )
    assert alone.central / GIB == pytest.approx(0.13, abs=0.005)  # kv044, kv050
    assert joined.central / GIB == pytest.approx(0.55, abs=0.005)  # kv046
    assert older.central / GIB == pytest.approx(1.38, abs=0.005)  # kv062
    assert alone.safe < cards.safe < joined.safe < older.safe


def test_requested_memory_is_rounded_up() -> None:
    assert requested_bytes(1001, 920) == 921


def test_a_stated_checkpoint_size_scales_the_estimate() -> None:
    found = geometry("Qwen/Qwen3-32B-FP8")
    estimate = weight_bytes_per_gpu(found, None, 2)
    stated = weight_bytes_per_gpu(found, 2 * found.weights.bytes_total(found.weight_format), 2)
    assert stated == pytest.approx(2 * estimate, rel=1e-9)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_shares_add_up_to_what_the_engine_asks_for(version: tuple[int, int, int] | None) -> None:
    shares = memory_shares(sizing_input(engine_version=version), batched_tokens=8192, sequences=27)
    assert shares.requested == -(-accelerator("H100-SXM-80GB").memory_bytes * 920 // 1000)  # type: ignore[operator]
    assert shares.pool + shares.beside_kv == shares.requested
    assert shares.central_pool == shares.pool + shares.reserve
    assert 0 < shares.reserve < 0.02 * 79 * GIB


def test_a_vision_tower_takes_its_weights_from_the_pool() -> None:
    without = memory_shares(sizing_input(), batched_tokens=8192, sequences=27)
    with_tower = memory_shares(sizing_input(vision_weight_bytes=GIB), batched_tokens=8192, sequences=27)
    assert with_tower.weights - without.weights == GIB
    assert without.pool - with_tower.pool >= GIB


LIMITS = st.tuples(st.integers(256, 32_768), st.integers(1, 1024))  # batched tokens and sequences


@given(
    model=st.sampled_from(MODELS),
    engine=st.tuples(st.sampled_from(VERSIONS), st.sampled_from((1, 2, 4)), st.booleans()),
    limits=LIMITS,
    more=LIMITS,
)
def test_more_sequences_or_larger_batches_never_leave_more(
    model: str,
    engine: tuple[tuple[int, int, int] | None, int, bool],
    limits: tuple[int, int],
    more: tuple[int, int],
) -> None:
    version, ranks, eager = engine
    inputs = sizing_input(
        geometry=geometry(model), engine_version=version, tensor_parallel_size=ranks, enforce_eager=eager
    )
    fewer = memory_shares(inputs, batched_tokens=limits[0], sequences=limits[1])
    larger = memory_shares(inputs, batched_tokens=limits[0] + more[0], sequences=limits[1] + more[1])
    assert larger.pool <= fewer.pool + 1  # the reserve is rounded up
    assert larger.central_pool <= fewer.central_pool


@pytest.mark.parametrize("version", VERSIONS)
def test_more_ranks_never_take_more_weights_or_activations(version: tuple[int, int, int] | None) -> None:
    one, two = (
        memory_shares(sizing_input(tensor_parallel_size=n, engine_version=version), batched_tokens=8192, sequences=64)
        for n in (1, 2)
    )
    assert two.weights < one.weights
    assert two.activation <= one.activation
    assert two.overhead > one.overhead


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


@pytest.mark.parametrize("name", [name for name in dir(c) if isinstance(getattr(c, name), c.Constant)])
def test_constants_have_evidence_and_lie_at_the_safe_end(name: str) -> None:
    constant: c.Constant = getattr(c, name)
    assert constant.low <= constant.high
    assert constant.value >= constant.low
    assert constant.source
    assert constant.unit
    if constant.likeliest is not None:  # constants of the memory model: more is safer
        assert constant.low <= constant.central <= constant.value


# Totals printed by drivers or torch, in GiB, per product.
TOTALS = [
    ("H100-SXM-80GB", 79.18),
    ("H200-SXM-141GB", 139.81),
    ("L40S-48GB", 44.42),
    ("A100-SXM-80GB", 79.25),
    ("B200-180GB", 178.35),
    ("RTX-4090-24GB", 23.65),
    ("RTX-5090-32GB", 31.37),
    ("RTX-PRO-6000-Blackwell-96GB", 94.97),
]


@pytest.mark.parametrize(("product", "printed_gib"), TOTALS)
def test_device_bytes_are_what_drivers_print_and_never_more(product: str, printed_gib: float) -> None:
    found = accelerator(product).memory_bytes
    assert found is not None
    assert 0.99 * printed_gib <= found / GIB <= printed_gib


def test_no_device_has_its_nominal_gigabytes_as_gibibytes() -> None:
    for name, entry in accelerators().items():
        memory = entry.facts.memory_bytes
        if memory is not None:
            nominal = int(name.rsplit("-", 1)[-1].removesuffix("GB"))
            assert 0.88 * nominal < memory / GIB < nominal, name


def test_a_custom_device_is_taken_at_its_bytes() -> None:
    assert custom_gpu(24).memory_bytes == 24 * GIB
