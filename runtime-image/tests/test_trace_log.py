import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reasoningpool_runtime import contract
from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.metrics import Metrics
from reasoningpool_runtime.trace_log import TraceLog

RESPONSE = b'{"choices":[{"message":{"reasoning":"hm","content":"Paris"}}]}'
BODY = {"messages": [{"role": "user", "content": "Hi"}]}


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1000.0
        self.drawn = 0.0
        self.log = TraceLog(Metrics(CollectorRegistry()), clock=lambda: self.now, draw=lambda: self.drawn)

    def configure(self, **settings: Any) -> None:
        self.log.configure(contract.TraceLog(**{"enabled": True, "path": str(self.path), **settings}))

    def record(self, tenant: str | None = None) -> bool:
        trace = self.log.begin(tenant, "tier", "low", BODY)
        if trace is None:
            return False
        trace.chunk(RESPONSE)
        trace.write(Api.CHAT, streamed=False, usage=None)
        return True

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "traces.jsonl")


def test_nothing_is_recorded_by_default(world: World) -> None:
    assert not world.record()


def test_a_record_holds_the_whole_exchange_and_is_private(world: World) -> None:
    world.configure()
    world.record("a")
    (line,) = world.lines()
    assert line["request"] == BODY["messages"]
    assert (line["thinking"], line["answer"], line["tenant"]) == ("hm", "Paris", "a")
    assert world.path.stat().st_mode & 0o777 == 0o600


def test_only_the_sample_is_recorded(world: World) -> None:
    world.configure(sample_permille=20)
    world.drawn = 0.0199
    assert world.record()
    world.drawn = 0.0201
    assert not world.record()


def test_tenants_that_opted_out_are_never_recorded(world: World) -> None:
    world.configure(opted_out_tenants=("a",))
    assert not world.record("a")
    assert world.record("b")


def test_records_per_minute_are_limited(world: World) -> None:
    world.configure(max_records_per_minute=2)
    assert [world.record() for _ in range(4)] == [True, True, False, False]
    world.now += 61
    assert world.record()


def test_a_long_record_is_shortened_to_its_limit(world: World) -> None:
    world.configure(max_record_bytes=1000)
    trace = world.log.begin(None, "tier", "low", {"messages": [{"content": "x" * 100_000}]})
    assert trace is not None
    trace.write(Api.CHAT, streamed=False, usage=None)
    (line,) = world.lines()
    assert line["shortened"] is True
    assert world.path.stat().st_size <= 1000


def test_the_file_does_not_grow_beyond_its_limit(world: World) -> None:
    world.configure(max_file_bytes=500, max_records_per_minute=100)
    for _ in range(50):
        world.record()
    assert 0 < world.path.stat().st_size <= 500


def redact(record: dict[str, Any]) -> dict[str, Any] | None:
    return None if record["tenant"] == "a" else {**record, "request": "gone"}


def test_a_redaction_changes_or_drops_records(world: World) -> None:
    world.configure(redaction=f"{__name__}:redact")
    world.log._redact = redact
    world.record("a")
    world.record("b")
    assert [line["request"] for line in world.lines()] == ["gone"]


def test_a_redaction_that_cannot_be_loaded_turns_the_log_off(world: World) -> None:
    world.configure(redaction="no_such_module:redact")
    assert not world.record()
