"""When a request may start, and what the policy learns."""

from __future__ import annotations

import numpy as np
import pytest

from reasoningpool_runtime.admission.policy import ForecastPolicy
from reasoningpool_runtime.admission.types import AdmissionConfig, AdmissionRequest, Capacity, Outcome

POOL = Capacity(blocks=255, block_tokens=16)


def request(**fields: object) -> AdmissionRequest:
    return AdmissionRequest(**{"effort": "high", "prompt_tokens": 64, "max_output_tokens": 1000} | fields)


def filled(policy: ForecastPolicy, one: AdmissionRequest, most: int = 1000) -> int:
    """Requests that may start at once, one after the other."""
    for count in range(most):
        share = policy.share(one)
        if not policy.may_start(share):
            return count
        policy.start(share, 0.0)
    return most


def taught(policy: ForecastPolicy, lengths: list[int], one: AdmissionRequest) -> ForecastPolicy:
    for length in lengths:
        share = policy.share(one)
        policy.start(share, 0.0)
        policy.grow(share, 0, length)
        policy.end(share, Outcome.COMPLETED)
    return policy


def test_without_history_caps_are_committed() -> None:
    # 1,064 tokens are 67 blocks; 255 carry three of them whatever they do.
    assert filled(ForecastPolicy(POOL, AdmissionConfig()), request()) == 3


def test_history_admits_more_than_the_caps_would() -> None:
    policy = taught(ForecastPolicy(POOL, AdmissionConfig()), [100] * 200, request())
    # 64 + 100 tokens are 11 blocks: 255 carry 23 of them, less a margin.
    assert 12 <= filled(policy, request()) <= 23


def test_known_lengths_fill_the_pool() -> None:
    config = AdmissionConfig(expected_output_tokens={"high": (100,)})
    policy = taught(ForecastPolicy(POOL, config), [100] * 500, request(max_output_tokens=101))
    assert filled(policy, request(max_output_tokens=101)) >= 22


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [({"prompt_tokens": 64}, {"prompt_tokens": 640}), ({"outputs": 1}, {"outputs": 3})],
)
def test_larger_requests_fit_less_often(smaller: dict[str, int], larger: dict[str, int]) -> None:
    counts = []
    for fields in (smaller, larger):
        policy = taught(ForecastPolicy(POOL, AdmissionConfig()), [200] * 100, request())
        counts.append(filled(policy, request(**fields)))
    assert counts[0] > counts[1]


def test_outputs_of_one_request_share_its_prompt_in_the_forecast() -> None:
    policy = ForecastPolicy(POOL, AdmissionConfig())
    policy.start(policy.share(request(prompt_tokens=640, outputs=4, max_output_tokens=16)), 0.0)
    assert policy.peaks().mean() == pytest.approx(40 + 4 * (1 + 15 / 32))


def test_a_named_prefix_is_shared_in_the_forecast() -> None:
    policy = ForecastPolicy(POOL, AdmissionConfig())
    for _ in range(4):
        one = request(prompt_tokens=640, prefix="system", prefix_tokens=640, max_output_tokens=16)
        policy.start(policy.share(one), 0.0)
    assert policy.peaks().mean() == pytest.approx(40 + 4 * (1 + 15 / 32))


def test_a_prompt_waits_for_blocks_that_are_free_now() -> None:
    policy = taught(ForecastPolicy(POOL, AdmissionConfig()), [20] * 200, request(max_output_tokens=2000))
    policy.start(policy.share(request(prompt_tokens=3000, max_output_tokens=1500)), 0.0)
    assert not policy.may_start(policy.share(request(prompt_tokens=1200)))


def test_an_idle_engine_takes_a_request_that_may_outgrow_the_pool() -> None:
    policy = ForecastPolicy(POOL, AdmissionConfig())
    assert policy.may_start(policy.share(request(max_output_tokens=100_000)))


def test_an_idle_engine_has_no_peak() -> None:
    assert not ForecastPolicy(POOL, AdmissionConfig()).peaks().any()


def test_sequences_and_requests_are_limited() -> None:
    policy = ForecastPolicy(Capacity(blocks=10_000, block_tokens=16, max_sequences=5), AdmissionConfig())
    assert filled(policy, request(outputs=2)) == 2
    policy = ForecastPolicy(POOL, AdmissionConfig(max_running=1))
    assert filled(policy, request(max_output_tokens=16)) == 1


def test_an_output_beyond_all_finishes_is_expected_to_go_on() -> None:
    policy = taught(ForecastPolicy(POOL, AdmissionConfig()), [100] * 200, request())
    share = policy.share(request())
    policy.start(share, 0.0)
    policy.grow(share, 0, 300)
    assert policy.peaks().mean() * 16 > 64 + 900


def test_overflows_raise_the_margin_once_each() -> None:
    policy = taught(ForecastPolicy(POOL, AdmissionConfig()), [100] * 200, request())
    shares = [policy.share(request(prompt_tokens=480, max_output_tokens=2000)) for _ in range(8)]
    for share in shares:
        policy.start(share, 0.0)
    before = policy.margin.deviations
    policy.grow(shares[0], 0, 400)
    policy.grow(shares[1], 0, 8)
    assert (policy.overflows, policy.margin.deviations > before) == (1, True)


def test_the_engines_own_count_replaces_the_ledgers() -> None:
    policy = ForecastPolicy(POOL, AdmissionConfig())
    policy.observe_preemptions(0)
    shares = [policy.share(request(prompt_tokens=480, max_output_tokens=2000)) for _ in range(8)]
    for share in shares:
        policy.start(share, 0.0)
    policy.grow(shares[0], 0, 400)
    assert policy.overflows == 0
    policy.observe_preemptions(2)
    assert policy.overflows == 2


def test_cancelled_requests_do_not_teach_short_lengths() -> None:
    policy = taught(ForecastPolicy(POOL, AdmissionConfig()), [400] * 100, request())
    for _ in range(100):
        share = policy.share(request())
        policy.start(share, 0.0)
        policy.grow(share, 0, 10)
        policy.end(share, Outcome.CANCELLED)
    assert policy.history("high").survival(np.zeros(0, dtype=np.int64), 1000).mean() > 380


def test_the_response_corrects_what_was_estimated() -> None:
    policy = ForecastPolicy(POOL, AdmissionConfig())
    share = policy.share(request(outputs=2))
    policy.start(share, 0.0)
    policy.grow_to(share, 500)
    policy.correct(share, 201)
    assert share.generated == [101, 100]
    policy.end(share, Outcome.COMPLETED)
    assert policy.ledger.resident_blocks == 0
