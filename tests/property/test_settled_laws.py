"""Whatever happens to a pool's StatefulSet, in the end it is what the last spec asks for.

A sequence is of changes of the spec, edits by hand of any field of any child, `rollout undo`, restarts with a lost
status, other versions of the operator, and suspension. The model says which pod template is due: that of the first
version of the operator that met the user's last change of the pods.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from reasoningpool.api import names
from reasoningpool.render.pod import probes
from reasoningpool.rollout import revision_of
from reasoningpool.rollout.record import ANNOTATION_APPLIED
from support.pools import pool, tier
from support.world import World

SET = ("StatefulSet", "p-reasoning")
SPECS = [
    {},
    {"engine": {"image": "vllm/vllm-openai:v0.33.1"}},
    {"engine": {"image": "vllm/vllm-openai:v0.99.0"}},
    {"tiers": [tier(promptTokens=8192)]},
    {"tiers": [tier(replicas=3)]},
]
# The API server refuses a change of these, or makes them itself.
FIXED = {"uid", "name", "namespace", "generation", "ownerReferences", "status", "apiVersion", "kind", "selector"}
FIXED |= {"serviceName", "volumeClaimTemplates", "podManagementPolicy", "labels"}


FRESH: dict[tuple[int, int], World] = {}  # what a spec alone gives, by spec and version of the operator


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything that is no mapping and no list."""
    if isinstance(value, dict):
        for name, item in value.items():
            if len(path) > 2 or name not in FIXED:
                yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    else:
        yield path


def changed(value: Any, path: tuple[Any, ...]) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return "7" if "resources" in path else f"{value}x"


class AnySequence(RuleBasedStateMachine):
    """One pool with one tier."""

    def __init__(self) -> None:
        super().__init__()
        self.version = self.spec = 0
        self.suspended = self.record_edited = False
        self.history: list[dict[str, Any]] = []
        self.world = World(self.wanted())

    def wanted(self, *, suspended: bool = False) -> dict[str, Any]:
        return pool(**copy.deepcopy(SPECS[self.spec]), **({"suspend": True} if suspended else {}))

    def fresh(self) -> World:
        """What the spec alone would give now."""
        found = FRESH.get((self.spec, self.version))
        if found is None:
            found = FRESH[self.spec, self.version] = World(self.wanted())
            self.run(found)
        return found

    def run(self, world: World) -> None:
        with ExitStack() as versions:
            if self.version:
                versions.enter_context(mock.patch.object(probes, "_STARTUP_PERIOD", 5 + self.version))
            for _ in range(2):
                world.step()

    def operate(self) -> None:
        """The operator looks at the pool; what it then should run is known."""
        if not self.suspended:
            due = self.fresh().children[SET]
            pods = {name: value for name, value in SPECS[self.spec].items() if name != "tiers"}
            spec = (pods, SPECS[self.spec].get("tiers", [{}])[0].get("promptTokens"))
            if self.record_edited or (spec != self.applied and revision_of(due) != revision_of(self.due)):
                self.due = due
            self.applied, self.record_edited = spec, False
        self.run(self.world)
        template = self.world.children[SET]["spec"]["template"]
        if template not in self.history:
            self.history.append(copy.deepcopy(template))

    @initialize()
    def create(self) -> None:
        self.due = self.fresh().children[SET]
        self.applied: Any = ({}, None)
        self.operate()

    @rule(spec=st.sampled_from(range(len(SPECS))), seen=st.booleans())
    def change(self, *, spec: int, seen: bool) -> None:
        self.spec = spec
        self.world.edit(self.wanted(suspended=self.suspended))
        if seen:
            self.operate()

    @rule(data=st.data(), seen=st.booleans())
    def edit(self, *, data: st.DataObject, seen: bool) -> None:
        kinds = sorted(self.world.children)
        live = self.world.children[data.draw(st.sampled_from(kinds))]
        path = data.draw(st.sampled_from(sorted(leaves(live), key=str)))
        place = live
        for step in path[:-1]:
            place = place[step]
        if data.draw(st.booleans()) and isinstance(place, dict) and path[-1] != ANNOTATION_APPLIED and len(path) > 2:
            del place[path[-1]]
        else:
            place[path[-1]] = changed(place[path[-1]], path)
            self.record_edited |= path[-1] == ANNOTATION_APPLIED
        live["metadata"]["generation"] += 1
        if seen:
            self.operate()

    @rule(data=st.data(), seen=st.booleans())
    def undo(self, *, data: st.DataObject, seen: bool) -> None:
        template = copy.deepcopy(data.draw(st.sampled_from(self.history)))
        self.world.children[SET]["spec"]["template"] = template
        if seen:
            self.operate()

    @rule(status=st.booleans())
    def restart(self, *, status: bool) -> None:
        if not status:
            self.world.pool.pop("status", None)
        self.operate()

    @rule(version=st.sampled_from([0, 1, 2]))
    def upgrade(self, version: int) -> None:
        self.version = version
        self.operate()

    @precondition(lambda self: not self.suspended)
    @rule()
    def suspend(self) -> None:
        self.suspended = True
        self.world.edit(self.wanted(suspended=True))
        self.operate()

    def teardown(self) -> None:
        self.suspended = False
        self.world.edit(self.wanted())
        self.operate()
        fresh = self.fresh()
        assert self.world.children.keys() == fresh.children.keys()
        for key, due in fresh.children.items():
            live = copy.deepcopy(self.world.children[key])
            if key == SET:
                revision = live["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_REVISION]
                assert revision == revision_of(self.due)
                assert live["spec"]["template"] == self.due["spec"]["template"]
                assert live["spec"]["replicas"] == due["spec"]["replicas"]
            else:
                assert live.get("spec") == due.get("spec"), key


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(
    max_examples=500 if settings.default.max_examples >= 500 else 25,  # the former in `make soak`
    stateful_step_count=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
