"""Advice on the block size."""

from reasoningpool.model import Geometry
from reasoningpool.sizing import KVCacheDType
from unit.sizing.builders import CPU, dense_config, effort, geometry, planned

TIER = {
    "accelerator": CPU,
    "geometry": Geometry.from_config(dense_config()),
    "kv_cache_dtype": KVCacheDType.AUTO,
    "kv_cache_memory_bytes": 8 << 20,
}


def advice(**changes: object) -> list[str]:
    found = planned(**changes).warnings
    return [warning.message for warning in found if "what requests hold empty" in warning.message]


def test_large_blocks_for_short_requests_are_advised_against_with_what_they_cost() -> None:
    short = {**TIER, "efforts": (effort(prompt=100, thinking=0, answer=100),)}
    (text,) = advice(**short)
    now, better = planned(**short).max_num_seqs, planned(**short, block_size=32).max_num_seqs
    assert "blocks of 128 tokens leave 30 %" in text
    assert text.endswith(f"blockSize 32 gives {better} sequences instead of {now}")
    assert better > 1.2 * now
    assert advice(**short, block_size=32) == []


def test_blocks_that_are_nearly_full_are_not_mentioned() -> None:
    assert advice(**TIER, efforts=(effort(prompt=2000, thinking=0, answer=500),)) == []
    assert advice() == []


def test_blocks_that_a_models_state_makes_large_are_not_advised_against() -> None:
    hybrid = {"geometry": geometry("Qwen/Qwen3.5-27B-FP8"), "efforts": (effort(prompt=300, thinking=0, answer=100),)}
    assert planned(**hybrid).block_size > 500
    assert advice(**hybrid) == []
