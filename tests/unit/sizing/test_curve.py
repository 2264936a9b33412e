"""Throughput and preempted share against the number of sequences."""

from itertools import pairwise

import pytest

from reasoningpool.sizing import throughput_curve
from unit.sizing.builders import CPU, custom_gpu, effort, planned, sizing_input


def test_the_plans_number_is_one_of_the_points_with_the_plans_share() -> None:
    plan = planned()
    (own,) = [point for point in throughput_curve(sizing_input()) if point.derived]
    assert own.sequences == plan.max_num_seqs
    assert own.preempted_share * 1000 <= plan.preempted_share_permille < own.preempted_share * 1000 + 1


def test_more_sequences_are_never_preempted_less() -> None:
    points = throughput_curve(sizing_input())
    assert 15 <= len(points) <= 40
    assert all(a.sequences < b.sequences for a, b in pairwise(points))
    assert all(a.preempted_share <= b.preempted_share for a, b in pairwise(points))
    assert points[0].preempted_share == 0
    assert points[-1].preempted_share > 0.2


def test_throughput_rises_while_nothing_is_preempted_and_falls_once_much_is() -> None:
    """On a GPU recomputing a run costs about two thirds of a request's engine time."""
    points = throughput_curve(sizing_input())
    free = [point.output_tokens_per_second for point in points if point.preemptions_per_request == 0]
    assert free == sorted(free)
    assert points[-1].output_tokens_per_second < max(point.output_tokens_per_second for point in points)


def test_chosen_numbers_are_answered_as_asked() -> None:
    points = throughput_curve(sizing_input(), [3, 1, 3, 0])
    assert [point.sequences for point in points] == [1, 3]


def test_one_sequence_takes_its_decode_and_its_prefill() -> None:
    (one,) = throughput_curve(sizing_input(efforts=(effort(prompt=8192, thinking=0, answer=1000),)), [1])
    decode = 1000 * one.time_per_output_token_ms / 1000
    assert 1000 / one.output_tokens_per_second == pytest.approx(decode + 8192 / 13_000, rel=0.05)


def test_shared_prefix_raises_the_throughput() -> None:
    (alone,) = throughput_curve(sizing_input(), [10])
    (shared,) = throughput_curve(sizing_input(shared_prefix_tokens=8000), [10])
    assert shared.output_tokens_per_second > alone.output_tokens_per_second


def test_accelerators_of_unknown_speed_have_a_curve_too() -> None:
    tier = {"kv_cache_memory_bytes": 1 << 30, "efforts": (effort(prompt=500, thinking=0, answer=100),)}
    assert throughput_curve(sizing_input(accelerator=CPU, **tier))
    assert throughput_curve(sizing_input(accelerator=custom_gpu(80, capability=(7, 0))))


def test_no_curve_where_nothing_fits() -> None:
    assert throughput_curve(sizing_input(accelerator=custom_gpu(20))) == ()
