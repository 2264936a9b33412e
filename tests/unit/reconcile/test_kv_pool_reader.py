"""Reading engines beside the cycles: few at once, again until it works, once per start, never more than asked for."""

import asyncio
from dataclasses import replace

import pytest

from reasoningpool.planning.actions import Plan
from reasoningpool.planning.observations import KVPool, KVPoolProblem, KVPoolRequest
from reasoningpool.reconcile.observe.kv_pools import KVPoolReader
from reasoningpool.reconcile.observe.readers import Readers
from reasoningpool.reconcile.pools import Pools
from reasoningpool.reconcile.store import PoolName
from unit.reconcile.builders import pool
from unit.reconcile.test_pool_task import World

POOL, OTHER = PoolName("llm", "p"), PoolName("llm", "q")
FOUND = KVPool(num_blocks=10, block_size=16)


def wanted(engine: str, address: str = "10.0.0.1") -> KVPoolRequest:
    return KVPoolRequest(engine=engine, address=address, port=8000)


class Engines:
    """Answers in order; the last one for ever. `hold` keeps requests under way."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []
        self.under_way = self.most = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, address: str, port: int):
        self.asked.append((address, port))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.hold.wait()
        finally:
            self.under_way -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def make():
    made = []

    def reader(engines, news=lambda _: None, **options) -> KVPoolReader:
        made.append(KVPoolReader(engines, news, first_retry=0.01, **options))
        return made[-1]

    yield reader
    for each in made:
        await each.stop()


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is not the reader's to signal
            await asyncio.sleep(0.002)


async def test_engine_is_read_once(make) -> None:
    engines, news = Engines(FOUND), []
    reader = make(engines, news.append)
    for _ in range(3):
        reader.want(POOL, (wanted("a"),))
    await until(lambda: reader.known(POOL))
    reader.want(POOL, (wanted("a"),))
    assert reader.known(POOL) == {"a": FOUND}
    assert reader.known(OTHER) == {}
    assert (engines.asked, news) == ([("10.0.0.1", 8000)], [POOL])


async def test_failure_is_reported_once_and_retried_until_it_works(make) -> None:
    unreachable = KVPoolProblem.UNREACHABLE
    engines, news = Engines(unreachable, unreachable, unreachable, FOUND), []
    reader = make(engines, news.append)
    reader.want(POOL, (wanted("a"),))
    await until(lambda: reader.known(POOL) == {"a": unreachable})
    await until(lambda: reader.known(POOL) == {"a": FOUND})
    assert (len(engines.asked), news) == (4, [POOL, POOL])


async def test_new_start_of_an_engine_is_read_anew_and_the_old_one_forgotten(make) -> None:
    reader = make(Engines(FOUND))
    reader.want(POOL, (wanted("a"),))
    await until(lambda: reader.known(POOL))
    reader.want(POOL, (wanted("b"),))
    assert reader.known(POOL) == {}
    await until(lambda: reader.known(POOL) == {"b": FOUND})


async def test_withdrawn_request_is_not_retried(make) -> None:
    engines = Engines(KVPoolProblem.TIMEOUT)
    reader = make(engines)
    reader.want(POOL, (wanted("a"),))
    await until(lambda: len(engines.asked) > 1)
    reader.forget(POOL)
    asked = len(engines.asked)
    other = make(Engines(FOUND))
    other.want(OTHER, (wanted("z"),))
    await until(lambda: other.known(OTHER))
    assert len(engines.asked) == asked
    assert reader.known(POOL) == {}


async def test_thousand_engines_are_asked_a_few_at_a_time(make) -> None:
    engines = Engines(FOUND)
    engines.hold.clear()
    reader = make(engines, at_once=16)
    for number in range(1000):
        reader.want(PoolName("llm", f"p{number}"), (wanted(f"a{number}"),))
    await until(lambda: engines.under_way == 16)
    engines.hold.set()
    await until(lambda: all(reader.known(PoolName("llm", f"p{number}")) for number in range(1000)))
    assert (engines.most, len(engines.asked)) == (16, 1000)


async def test_engines_that_failed_before_leave_room_for_one_that_is_new(make) -> None:
    engines = Engines(KVPoolProblem.TIMEOUT)
    reader = make(engines, at_once=4)
    failing = tuple(wanted(f"a{number}") for number in range(12))
    reader.want(POOL, failing)
    await until(lambda: len(reader.known(POOL)) == len(failing))
    engines.hold.clear()
    asked = len(engines.asked)
    await until(lambda: len(engines.asked) > asked)
    reader.want(OTHER, (wanted("z", "10.0.0.2"),))
    await until(lambda: ("10.0.0.2", 8000) in engines.asked)
    assert engines.under_way == 2
    engines.hold.set()


async def test_engine_that_hangs_delays_no_one_who_asks(make) -> None:
    engines = Engines(FOUND)
    engines.hold.clear()
    reader = make(engines, at_once=1)
    reader.want(POOL, (wanted("a"),))
    reader.want(OTHER, (wanted("b"),))
    assert (reader.known(POOL), reader.known(OTHER)) == ({}, {})


async def test_internal_error_is_a_failure_and_retried(make) -> None:
    reader = make(Engines(RuntimeError("boom"), FOUND))
    reader.want(POOL, (wanted("a"),))
    await until(lambda: reader.known(POOL) == {"a": FOUND})


async def test_cycle_goes_on_while_an_engine_hangs_and_a_reading_makes_another_one(make) -> None:
    engines = Engines(FOUND)
    engines.hold.clear()
    async with World(planner=lambda _: Plan(wanted=(wanted("a"),), status={"reason": "Ok"})) as world:
        reader = make(engines, lambda _: world.task.wake(urgent=False))
        world.task._shared = replace(world.shared, readers=Readers(reader))
        await until(lambda: engines.under_way == 1 and world.executor.statuses)
        assert world.snapshots[0].observations.of(KVPoolRequest) == {}
        engines.hold.set()
        await until(lambda: world.snapshots[-1].observations.of(KVPoolRequest) == {"a": FOUND})
        assert len(world.snapshots) == 2


async def test_deleted_pool_is_no_longer_read(make) -> None:
    world = World(planner=lambda _: Plan(wanted=(wanted("a"),)))
    reader = make(Engines(KVPoolProblem.TIMEOUT))
    pools = Pools(replace(world.shared, readers=Readers(reader)))
    pools.seen(pool())
    pools.start()
    await until(lambda: reader.known(POOL))
    pools.gone(POOL, pool()["metadata"]["uid"])
    await until(lambda: not reader.known(POOL))
    await pools.stop()
