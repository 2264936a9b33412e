"""The gateway's objects on a real API server: it stores what was rendered, so a second apply has nothing to do."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.operator_support import Parts, parts
from reasoningpool.api.resource import parse_pool
from reasoningpool.objects import ObjectKey
from reasoningpool.planning.actions import Apply
from reasoningpool.planning.offline import offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings
from support.pools import chat_tier, pool, tier


@pytest.fixture
async def world(crd_cluster, apiserver):
    namespace = crd_cluster.new_namespace("gateway")
    async with parts(crd_cluster.kubeconfig, apiserver, namespace) as made:
        yield made


def stored(rendered: Any, live: Any) -> Any:
    """Of what the server has, the fields that were rendered."""
    if isinstance(rendered, dict) and isinstance(live, dict):
        return {name: stored(value, live.get(name)) for name, value in rendered.items()}
    if isinstance(rendered, list) and isinstance(live, list) and len(rendered) == len(live):
        return [stored(*pair) for pair in zip(rendered, live, strict=True)]
    return live


async def test_the_server_stores_the_gateway_as_it_was_rendered_and_it_is_applied_once(world: Parts) -> None:
    body = pool(world.name.name, tiers=[tier(), chat_tier()], gateway={"mode": "Standalone"})
    body["metadata"]["namespace"] = world.name.namespace
    rendered = offline_pool(parse_pool(body), ResolutionSettings()).manifests
    gateway = [m for m in rendered if m["metadata"]["labels"].get("app.kubernetes.io/component") == "gateway"]
    assert len(gateway) == 6
    wanted = [Apply(manifest=manifest, why="a test") for manifest in gateway]
    report = await world.carry_out(*wanted)
    assert (report.failures, report.transient) == ((), [])
    await world.look()
    await world.carry_out(*wanted)
    before = sum(world.kube.requests.values())
    await world.carry_out(*wanted)
    assert sum(world.kube.requests.values()) == before
    for manifest in gateway:
        live = await world.kube.get(ObjectKey.of(manifest))
        for part in ("spec", "data"):
            assert stored(manifest.get(part), live.get(part)) == manifest.get(part)
