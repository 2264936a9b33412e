"""Laws of the correction, over sequences of plan, roll and measurement: it ends, it rolls once, it never rolls back."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reasoningpool.planning.observations import KVPool
from reasoningpool.planning.verification.sizing import TOLERANCE_PERMILLE
from support.engines import limit_of, run_until_settled
from support.pools import pool, tier
from support.world import World, condition

LAW = settings(max_examples=40, deadline=None, derandomize=True, database=None)
BLOCK = 16


@dataclass
class Engine:
    """A pool that is `permille` of what was planned and grows by a few blocks with each sequence less.

    So it is on a GPU, where memory of sampler and graphs is freed. `noise` (permille) differs from start to start.
    """

    planned: int
    planned_limit: int
    permille: int
    blocks_per_sequence: int
    noise: list[int]
    starts: int = 0

    def __call__(self, limit: int, _pod: str) -> KVPool:
        noise = self.noise[self.starts % len(self.noise)]
        self.starts += 1
        tokens = self.planned * self.permille // 1000
        tokens += BLOCK * self.blocks_per_sequence * (self.planned_limit - limit)
        return KVPool(num_blocks=1 + max(1, tokens * (1000 + noise) // 1000 // BLOCK), block_size=BLOCK)


def gpu_pool(policy: str) -> dict:
    return pool(tiers=[tier(concurrency={"policy": policy}, replicas=1)])


def planned(body: dict) -> tuple[int, int]:
    world = World(copy.deepcopy(body))
    world.step()
    return int(world.pool["status"]["tiers"][0]["sizing"]["usableKVTokens"]), limit_of(world)


POLICIES = {policy: planned(gpu_pool(policy)) for policy in ("Statistical", "WorstCase")}


def engine_of(policy: str, permille: int, blocks: int, noise: list[int]) -> Engine:
    tokens, limit = POLICIES[policy]
    return Engine(tokens, limit, permille, blocks, noise)


@LAW
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    permille=st.integers(200, 1500),
    blocks=st.integers(0, 40),
    noise=st.lists(st.integers(-TOLERANCE_PERMILLE // 2 + 1, TOLERANCE_PERMILLE // 2 - 1), min_size=1, max_size=4),
)
@example(policy="Statistical", permille=980, blocks=0, noise=[0])
@example(policy="WorstCase", permille=979, blocks=0, noise=[9, -9])
def test_pool_that_grows_as_sequences_go_is_corrected_once_whatever_the_noise(
    policy: str, permille: int, blocks: int, noise: list[int]
) -> None:
    world = World(gpu_pool(policy))
    engine = engine_of(policy, permille, blocks, noise)
    ran: list[int] = []
    for _ in range(5):  # further starts of the same pods differ by their noise
        ran += run_until_settled(world, engine)
        assert condition(world.pool["status"], "SizingVerified")["status"] == "True"
        assert condition(world.pool["status"])["status"] == "True"
        world.kv_pools.clear()
    assert len(set(ran)) <= 2, "one roll at most, whenever it comes"
    assert ran == sorted(ran, reverse=True)


@LAW
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    sizes=st.lists(st.integers(1, 1_500), min_size=1, max_size=12),
)
def test_any_pools_come_to_rest_and_the_limit_never_rises(policy: str, sizes: list[int]) -> None:
    """Whatever engines report, also nonsense: each further correction needs a pool smaller by the tolerance."""
    world = World(gpu_pool(policy))
    tokens, limit = POLICIES[policy]
    starts = iter([*sizes, *[sizes[-1]] * 1000])
    limits = run_until_settled(
        world, lambda *_: KVPool(num_blocks=1 + tokens * next(starts) // 1000 // BLOCK, block_size=BLOCK)
    )
    assert limits[0] == limit
    assert limits == sorted(set(limits), reverse=True)
    status = world.pool["status"]
    verified = condition(status, "SizingVerified")
    assert verified["status"] in {"True", "False"}
    assert (verified["reason"] == "KVPoolTooSmall") == (verified["status"] == "False")
    measured = status["tiers"][0]["sizing"]["verified"]
    if verified["status"] == "True":
        floor = (1000 - TOLERANCE_PERMILLE) * measured["plannedUsableKVTokens"]
        assert 1000 * measured["usableKVTokens"] >= floor
