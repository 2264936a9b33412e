"""An etcd that was restored to an older state without a bump of its revision: versions are smaller than those seen."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from reasoningpool.adapters.errors import NotFound
from reasoningpool.adapters.kube import Page
from reasoningpool.objects import Kind, ObjectKey
from reasoningpool.reconcile.observer import Observer
from reasoningpool.reconcile.store import PoolName, Store
from unit.reconcile.builders import stateful_set

POOL = PoolName("llm", "p")


class Kube:
    """Lists and reads StatefulSets at one resourceVersion."""

    def __init__(self, version: int, *items: dict[str, Any]) -> None:
        self.version, self.items = version, items

    async def pages(self, kind: Kind, **_: Any) -> AsyncIterator[Page]:
        yield Page([item for item in self.items if item["kind"] == kind.kind], str(self.version))

    async def get(self, key: ObjectKey, **_: Any) -> dict[str, Any]:
        for item in self.items:
            if ObjectKey.of(item) == key:
                return item
        raise NotFound("gone", status=404)


class Pools:
    def __init__(self) -> None:
        self.woken = 0

    def names(self) -> Iterator[Any]:
        return iter(())

    def wake_all(self) -> None:
        self.woken += 1


def store(*items: dict[str, Any]) -> Store:
    made = Store()
    for item in items:
        made.upsert(item)
    return made


def images(known: Store) -> dict[str, str]:
    return {
        child["metadata"]["name"]: child["spec"]["template"]["spec"]["containers"][0]["image"]
        for child in known.children(POOL)
    }


async def test_older_state_is_taken_over_at_the_next_list(caplog: pytest.LogCaptureFixture) -> None:
    known = store(stateful_set(image="v2", version=900), stateful_set("p-b", version=950))
    kube, pools = Kube(500, stateful_set(image="v1", version=400)), Pools()
    with caplog.at_level(logging.WARNING):
        await Observer(kube, known, pools, None, lag=0.0).compare()  # type: ignore[arg-type]
    assert images(known) == {"p-a": "v1"}
    assert pools.woken == 1
    assert "went back from 950 to 500" in caplog.text


async def test_what_had_been_deleted_is_known_again_when_the_restore_brings_it_back() -> None:
    known = store(stateful_set(version=900), stateful_set("p-b", version=950))
    known.remove(POOL, ObjectKey.of(stateful_set()), "uid-p-a", version=960)
    kube = Kube(500, stateful_set(version=400), stateful_set("p-b", version=410))
    await Observer(kube, known, Pools(), None, lag=0.0).compare()  # type: ignore[arg-type]
    assert set(images(known)) == {"p-a", "p-b"}


async def test_versions_that_grow_wake_nobody_and_keep_what_is_newer_than_the_list() -> None:
    known, pools = store(stateful_set(image="v2", version=900)), Pools()
    await Observer(Kube(900, stateful_set(image="v1", version=400)), known, pools, None, lag=0.0).compare()  # type: ignore[arg-type]
    assert (images(known), pools.woken) == ({"p-a": "v2"}, 0)
