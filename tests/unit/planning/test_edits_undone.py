"""Edits of a StatefulSet by hand, by `rollout undo` and by others, and what a rollout is said to change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from reasoningpool.api import names
from reasoningpool.planning.actions import Plan
from reasoningpool.render.pod import probes
from reasoningpool.rollout.record import ANNOTATION_APPLIED, record_of, with_record
from support.pools import pool, tier
from support.world import World

SET = ("StatefulSet", "p-reasoning")
BAD = {"engine": {"image": "vllm/vllm-openai:v0.99.0"}}


def world() -> World:
    made = World(pool())
    made.step()
    made.roll(SET[1])
    made.step()
    return made


def template(made: World) -> dict[str, Any]:
    found: dict[str, Any] = made.children[SET]["spec"]["template"]
    return found


def engine(made: World) -> dict[str, Any]:
    found: dict[str, Any] = template(made)["spec"]["containers"][0]
    return found


def change_of(plan: Plan) -> str:
    (message,) = (note.message for note in plan.events if note.reason == "RolloutStarted")
    return message


def test_t2_12_revert_after_an_undo_rolls_the_bad_image_back() -> None:
    made = world()
    good = copy.deepcopy(template(made))
    made.edit(pool(**BAD))
    made.step()
    bad = copy.deepcopy(template(made))
    made.children[SET]["spec"]["template"] = copy.deepcopy(good)  # kubectl rollout undo
    made.step()
    assert template(made) == bad, "the spec still asks for it, and its revision says so"
    made.edit(pool())
    made.step()
    assert template(made) == good


def test_t2_13_change_does_not_tell_of_what_others_added_or_rewrote() -> None:
    made = world()
    template(made)["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "2026-01-01T00:00:00Z"
    engine(made)["image"] = f"mirror.corp/{engine(made)['image']}"
    made.edit(pool(tiers=[tier(promptTokens=8192)]))
    text = change_of(made.step())
    assert "argument --max-model-len" in text
    assert "restartedAt" not in text
    assert "mirror.corp" not in text


def test_edit_while_an_upgrade_waits_is_restored_to_the_template_applied_last(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    before = copy.deepcopy(template(made))
    monkeypatch.setattr(probes, "_STARTUP_PERIOD", 7)
    made.step()
    assert template(made) == before
    engine(made)["image"] = "hacked:1"
    template(made)["metadata"]["annotations"][names.ANNOTATION_REVISION] = "hacked"
    made.step()
    assert template(made) == before
    assert made.pool["status"]["tiers"][0]["rollout"]["waiting"]


@pytest.mark.parametrize("value", ["", "hacked"])
def test_edited_revision_is_put_back(value: str) -> None:
    made = world()
    before = copy.deepcopy(template(made))
    template(made)["metadata"]["annotations"][names.ANNOTATION_REVISION] = value
    made.step()
    assert template(made) == before


def test_edited_record_leaves_the_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    engine(made)["image"] = "hacked:1"
    made.children[SET]["metadata"]["annotations"][ANNOTATION_APPLIED] = "hacked"
    monkeypatch.setattr(probes, "_STARTUP_PERIOD", 7)
    made.step()
    assert engine(made)["image"] != "hacked:1"
    assert engine(made)["startupProbe"]["periodSeconds"] == 7
    assert record_of(made.children[SET]) is not None


def test_stateful_set_of_an_earlier_version_without_a_record_does_not_roll(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    before = copy.deepcopy(template(made))
    del made.children[SET]["metadata"]["annotations"][ANNOTATION_APPLIED]
    monkeypatch.setattr(probes, "_STARTUP_PERIOD", 7)
    made.step()
    assert template(made) == before
    assert record_of(made.children[SET]) is not None


@pytest.mark.parametrize("text", ["", "x", "AAAA", "eJwDAAAAAAE=", "eJyrBQABAwEB"])
def test_record_that_does_not_read_is_none(text: str) -> None:
    manifest = copy.deepcopy(world().children[SET])
    manifest["metadata"]["annotations"][ANNOTATION_APPLIED] = text
    assert record_of(manifest) is None


def test_record_has_a_few_kilobytes() -> None:
    manifest = world().children[SET]
    assert len(with_record(manifest, ())["metadata"]["annotations"][ANNOTATION_APPLIED]) < 4096
