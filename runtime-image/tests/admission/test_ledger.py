"""The ledger's totals, and that nothing stays behind."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool_runtime.admission.ledger import Ledger, Share
from reasoningpool_runtime.admission.types import AdmissionRequest, Capacity

CAPACITY = Capacity(blocks=1000, block_tokens=16, blocks_per_sequence=2)
RANKS = np.zeros((4, 1))


def request(**fields: object) -> AdmissionRequest:
    return AdmissionRequest(**{"effort": "low", "prompt_tokens": 40, "max_output_tokens": 100} | fields)


def test_one_request_holds_its_blocks() -> None:
    ledger = Ledger(CAPACITY)
    share = Share(request(), RANKS)
    ledger.start(share, 0.0)
    assert (ledger.resident_blocks, ledger.committed_blocks) == (3 + 2, 9 + 2)
    ledger.set(share, 0, 9)  # 49 tokens
    assert ledger.resident_blocks == 4 + 2


def test_outputs_of_one_request_share_its_prompt() -> None:
    ledger = Ledger(CAPACITY)
    ledger.start(Share(request(prompt_tokens=163, outputs=4), RANKS), 0.0)
    # Ten whole blocks once; the broken one and the constant ones for every output.
    assert ledger.resident_blocks == 10 + 4 * (1 + 2)
    assert ledger.sequences == 4


def test_a_named_prefix_is_counted_once_and_stays_until_the_last_has_ended() -> None:
    ledger = Ledger(CAPACITY)
    first, second = (Share(request(prompt_tokens=200, prefix="system", prefix_tokens=160), RANKS) for _ in range(2))
    ledger.start(first, 0.0)
    alone = ledger.resident_blocks
    ledger.start(second, 0.0)
    assert ledger.resident_blocks == 2 * alone - 10
    ledger.end(first)
    assert ledger.resident_blocks == alone
    ledger.end(second)
    assert ledger.resident_blocks == 0


def test_prefixes_of_another_length_are_not_taken_as_shared() -> None:
    ledger = Ledger(CAPACITY)
    for tokens in (160, 96):
        ledger.start(Share(request(prompt_tokens=200, prefix="system", prefix_tokens=tokens), RANKS), 0.0)
    assert ledger.resident_blocks == 2 * (13 + 2)


def test_the_last_admitted_are_the_ones_preempted() -> None:
    ledger = Ledger(Capacity(blocks=20, block_tokens=16))
    shares = [Share(request(prompt_tokens=96, max_output_tokens=200), RANKS) for _ in range(3)]
    for share in shares:
        ledger.start(share, 0.0)
    assert ledger.overflow() == 0
    ledger.set(shares[0], 0, 48)
    assert ledger.overflow() == 1
    ledger.set(shares[0], 0, 200)
    assert ledger.overflow() == 2


def test_a_request_ends_once() -> None:
    ledger = Ledger(CAPACITY)
    share, other = Share(request(outputs=2), RANKS), Share(request(), RANKS)
    ledger.start(share, 0.0)
    ledger.start(other, 0.0)
    assert ledger.end_output(share, 0) == 0
    assert ledger.end_output(share, 0) is None
    assert ledger.end(share) == [0]
    assert ledger.end(share) == []
    ledger.set(share, 1, 50)
    assert ledger.resident_blocks == 3 + 2


def counted(ledger: Ledger) -> int:
    """Resident blocks from scratch."""
    block, constant = CAPACITY.block_tokens, CAPACITY.blocks_per_sequence
    total, prefixes = 0, set()
    for share in ledger.shares:
        one = share.request
        prefix = one.prefix_tokens // block if one.prefix else 0
        if prefix:
            prefixes.add((one.prefix, prefix))
        total += one.prompt_tokens // block - prefix
        own = one.prompt_tokens % block
        total += sum(-(-(own + made) // block) + constant for made in share.generated if made is not None)
    return total + sum(blocks for _, blocks in prefixes)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_totals_match_a_recount_and_return_to_zero(seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger(CAPACITY)
    for _ in range(400):
        running = ledger.shares
        action = chance.random()
        if action < 0.35 or not running:
            prompt = chance.randint(0, 300)
            named = chance.choice([None, "a", "b"])
            one = request(
                prompt_tokens=prompt,
                max_output_tokens=chance.randint(1, 300),
                outputs=chance.choice([1, 1, 1, 2, 4]),
                prefix=named,
                prefix_tokens=min(prompt, chance.choice([0, 32, 100])),
            )
            ledger.start(Share(one, RANKS), 0.0)
        else:
            share = chance.choice(running)
            output = chance.randrange(share.request.outputs)
            if action < 0.75:
                ledger.set(share, output, chance.randint(0, 320))
            elif action < 0.85:
                ledger.end_output(share, output)
            else:
                ledger.end(share)
        assert ledger.resident_blocks == counted(ledger)
        assert 0 <= ledger.resident_blocks <= ledger.committed_blocks
        assert ledger.sequences == sum(made is not None for one in ledger.shares for made in one.generated)
    for share in ledger.shares:
        ledger.end(share)
    assert (ledger.resident_blocks, ledger.committed_blocks, ledger.sequences, len(ledger)) == (0, 0, 0, 0)


@pytest.mark.parametrize("fields", [{"prompt_tokens": -1}, {"max_output_tokens": 0}, {"outputs": 0}])
def test_impossible_requests_are_rejected(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="not a request"):
        request(**fields)


def test_a_prefix_longer_than_the_prompt_is_rejected() -> None:
    with pytest.raises(ValueError, match="prefix of 41 tokens"):
        request(prefix="system", prefix_tokens=41)


@pytest.mark.parametrize("fields", [{"blocks": 0}, {"block_tokens": 0}, {"max_sequences": 0}])
def test_impossible_pools_are_rejected(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"no KV pool|at least 1"):
        Capacity(**{"blocks": 10, "block_tokens": 16} | fields)
