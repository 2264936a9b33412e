"""Engines for a `World`: their KV pools as a function of the limit they run with, and a loop until nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reasoningpool.planning.live import LivePod, live_tier
from reasoningpool.planning.verification.kv_pools import engine_start, kv_pool_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from reasoningpool.planning.observations import KVPoolReport
    from support.world import World

NAME = "p-reasoning"
MOST_CYCLES = 40


def limit_of(world: World, name: str = NAME) -> int:
    """The --max-num-seqs in the live pod template."""
    (container, *_) = world.children["StatefulSet", name]["spec"]["template"]["spec"]["containers"]
    return int(next(a for a in container["args"] if a.startswith("--max-num-seqs=")).partition("=")[2])


def read_all(world: World, engine: Callable[[int, str], KVPoolReport], name: str = NAME) -> bool:
    """Every ready replica that planning asks for answers, once; whether there was one."""
    tier = name.partition("-")[2]
    live = live_tier(world.children.values(), world.pods.values(), name, tier)
    wanted = {request.subject for request in kv_pool_requests(live)} - world.kv_pools.keys()
    for body in world.pods.values():
        key = engine_start(LivePod(body))
        if key in wanted:
            world.kv_pools[key] = engine(limit_of(world, name), body["metadata"]["name"])
    return bool(wanted)


def run_until_settled(world: World, engine: Callable[[int, str], KVPoolReport], name: str = NAME) -> list[int]:
    """Plan, roll and read until a plan changes nothing; answers the limits that the pods ran with, in order."""
    limits: list[int] = []
    template = None
    for _ in range(MOST_CYCLES):
        done = world.step()
        now = world.children["StatefulSet", name]["spec"]["template"]
        if now != template:
            template = now
            limits.append(limit_of(world, name))
            world.roll(name)
        elif not read_all(world, engine, name) and done.status is None and done.requeue_after_seconds is None:
            return limits
    raise AssertionError(f"not settled after {MOST_CYCLES} cycles: {limits}")
