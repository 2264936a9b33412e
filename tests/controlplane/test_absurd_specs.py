"""Any single field with a wrong type or an absurd value: the API server says so, or Accepted=False does.

The spec that sets every field is changed in one place at a time. Nothing may crash, be injected into the
engine's command line, or be judged differently by the command line and by the API server.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from reasoningpool.api.resource import SpecError, parse_pool
from reasoningpool.planning.plan import PlanningSettings, plan
from reasoningpool.planning.snapshot import Snapshot
from reasoningpool.resolution.resolve import ResolutionSettings
from support.pools import full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.apiserver import ApiServer

pytestmark = pytest.mark.timeout(600)

INJECTION = "x\"; --port=1 \n$(HF_TOKEN) 'é漢"
ABSURD: tuple[Any, ...] = (
    0, -1, 10**12, 2**63, 1.5, True, "", " ", "x", "-1", "9" * 30, "a" * 10_000, INJECTION, "--flag", "a\0b",
    [], [1], {}, {"x": 1},
)  # fmt: skip
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = PlanningSettings(resolution=ResolutionSettings(allowed_service_accounts=frozenset({"engine"})))

Path = tuple[str | int, ...]


def paths(node: Any, at: Path = ()) -> Iterator[Path]:
    """Every field of a spec, objects and lists included."""
    if at:
        yield at
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from paths(child, (*at, key))


def with_value(body: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(body)
    node: Any = result["spec"]
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return result


def sections() -> list[str]:
    """Fields of the spec and of a tier, each a test of its own, so that a failure names its part."""
    spec = full()["spec"]
    return [key for key in spec if key != "tiers"] + [f"tiers/{key}" for key in spec["tiers"][0]]


@pytest.mark.parametrize("section", sections())
def test_absurd_value_is_answered_clearly_and_alike_everywhere(apiserver: ApiServer, section: str) -> None:
    body = full()
    prefix: Path = ("tiers", 0, section.removeprefix("tiers/")) if "/" in section else (section,)
    inside = [path for path in paths(body["spec"]) if path[: len(prefix)] == prefix]
    assert inside
    for path in inside:
        for value in ABSURD:
            check(apiserver, with_value(body, path, value), f"{path} = {value!r:.60}")


def check(apiserver: ApiServer, body: dict[str, Any], what: str) -> None:
    answer = apiserver.try_create("default", body)
    assert answer.status in {201, 400, 422}, f"{what}: {answer.status} {answer.message}"
    try:
        parse_pool(body)
        refused = ""
    except SpecError as error:
        refused = str(error)
        assert all(finding.path and finding.message for finding in error.findings), what
    if answer.ok:
        # The server may drop an empty value for one of its own, which is what the operator then sees.
        body = answer.body
        assert refused == "" or not _accepted(body), f"{what}: only the command line refuses it: {refused}"
        outcome = plan(Snapshot(pool=body), now=NOW, settings=SETTINGS)
        assert_clear(outcome.status, what)
        assert_no_injection(outcome, what)
    else:
        assert answer.message, what
        assert refused, f"{what}: only the API server refuses it: {answer.message}"


def _accepted(body: dict[str, Any]) -> bool:
    try:
        parse_pool(body)
    except SpecError:
        return False
    return True


def assert_clear(status: dict[str, Any] | None, what: str) -> None:
    assert status is not None, what
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    accepted = conditions["Accepted"]
    assert accepted["reason"] != "ReconcileError", f"{what}: {accepted}"
    if accepted["status"] == "False":
        assert "spec." in accepted["message"], f"{what}: {accepted}"


def assert_no_injection(outcome: Any, what: str) -> None:
    """No argument but the user's own extra ones carries what only a user wrote."""
    for apply in outcome.applies:
        if apply.manifest["kind"] != "StatefulSet":
            continue
        for container in apply.manifest["spec"]["template"]["spec"]["containers"]:
            if container["name"] != "engine":
                continue
            extra = len(full()["spec"]["engine"]["extraArgs"])
            owned = [argument for argument in container["args"] if argument.startswith("--")]
            names = [argument.partition("=")[0] for argument in owned]
            assert len(names) == len(set(names)), f"{what}: an argument twice: {names}"
            assert sum(argument.startswith("--port") for argument in owned) == 1, f"{what}: {owned}"
            assert all("$(" not in argument for argument in owned[: len(owned) - extra]), f"{what}: {owned}"
