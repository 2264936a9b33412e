"""One leader at a time, judged by nobody's clock but one's own."""

import copy

import pytest

from reasoningpool.adapters.errors import Conflict, NotFound, Unreachable
from reasoningpool.process.lease import Lease


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Server:
    """One Lease with optimistic locking."""

    def __init__(self):
        self.lease, self.version, self.down = None, 0, False

    def _up(self):
        if self.down:
            raise Unreachable("no answer")

    async def get_lease(self, key):
        self._up()
        if self.lease is None:
            raise NotFound("none", status=404)
        return copy.deepcopy(self.lease)

    async def create_lease(self, lease):
        self._up()
        if self.lease is not None:
            raise Conflict("exists", status=409, reason="AlreadyExists")
        self._store(lease)

    async def put_lease(self, lease):
        self._up()
        if lease["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("modified", status=409)
        self._store(lease)

    def _store(self, lease):
        self.version += 1
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = str(self.version)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def clock():
    return Clock()


def contender(server, clock, name):
    return Lease(server, namespace="system", name="operator", identity=name, clock=clock)


async def test_the_first_takes_it_and_the_second_waits(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    assert await one.attempt()
    assert not await two.attempt()
    assert (one.held, two.held) == (True, False)
    assert two.holder == "one"


@pytest.mark.field_report("K07")
async def test_dead_leader_is_replaced_only_after_the_lease_duration(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    await two.attempt()
    clock.now += 14.9
    assert not await two.attempt()
    clock.now += 0.1
    assert await two.attempt()
    assert server.lease["spec"]["leaseTransitions"] == 1


@pytest.mark.field_report("K07")
async def test_leader_that_cannot_renew_stops_before_another_may_start(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    await two.attempt()
    clock.now += 10.0
    assert not one.held
    assert not await two.attempt()


async def test_a_leader_that_renews_is_never_followed(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    for _ in range(30):
        clock.now += 2.0
        assert await one.attempt()
        assert not await two.attempt()
    assert server.lease["spec"]["leaseTransitions"] == 0


async def test_a_released_lease_is_free_at_once(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    await two.attempt()
    await one.release()
    assert not one.held
    assert await two.attempt()


async def test_releasing_what_another_holds_changes_nothing(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    await two.attempt()
    clock.now += 20
    await two.attempt()
    await one.release()
    assert server.lease["spec"]["holderIdentity"] == "two"


async def test_of_two_that_see_the_same_free_lease_one_gets_it(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    await one.release()
    stale = await server.get_lease(None)
    assert await two.attempt()
    assert not await one._take(stale)


async def test_clocks_of_others_do_not_matter(server, clock):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    server.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    assert not await two.attempt()


async def test_keeping_ends_when_another_has_taken_it(server, clock, monkeypatch):
    one, two = contender(server, clock, "one"), contender(server, clock, "two")
    await one.attempt()
    await two.attempt()

    async def sleep(seconds):
        clock.now += 20
        await two.attempt()

    monkeypatch.setattr("asyncio.sleep", sleep)
    await one.keep()
    assert not one.held


async def test_keeping_survives_an_api_server_that_is_away_for_less_than_the_deadline(server, clock, monkeypatch):
    one = contender(server, clock, "one")
    await one.attempt()
    moments = iter([True, True, True, False, False])

    async def sleep(seconds):
        clock.now += seconds
        server.down = next(moments, None)
        if server.down is None:
            await one.release()

    monkeypatch.setattr("asyncio.sleep", sleep)
    server.down = True
    await one.keep()
    assert server.lease["spec"]["holderIdentity"] in {"", "one"}
    assert next(moments, "all used") == "all used"


async def test_keeping_ends_when_the_api_server_is_away_for_longer(server, clock, monkeypatch, caplog):
    one = contender(server, clock, "one")
    await one.attempt()
    server.down = True

    async def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr("asyncio.sleep", sleep)
    await one.keep()
    assert not one.held
    assert clock.now <= 1000 + 10 + 2
    assert "leadership lost" in caplog.text
