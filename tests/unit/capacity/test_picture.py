"""The picture is a well-formed SVG that shows what it should."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from reasoningpool.capacity.picture import Panel, draw
from unit.capacity.builders import effort, log, requests

SVG = "{http://www.w3.org/2000/svg}"


def drawn(title: str = "p / reasoning", source: str = "log.csv") -> ET.Element:
    thinking = [100] * 80 + [3000] * 20
    whole = log([t + 50 for t in thinking], thinking=thinking, prompt=[500] * 100)
    return ET.fromstring(draw([Panel(title=title, source=source, requests=requests(whole, effort("high", 1000, 512)))]))


def texts(root: ET.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def test_every_budget_has_its_plot_with_its_figures() -> None:
    found = texts(drawn())
    assert {"promptTokens", "high: thinkingTokens", "high: answerTokens"} <= set(found)
    assert {"budget 4,096", "budget 1,000", "budget 512", "20.0 % cut", "0.0 % longer"} <= set(found)


def test_what_is_cut_has_a_colour_of_its_own() -> None:
    colours = [node.get("fill") for node in drawn().iter(f"{SVG}rect")]
    assert colours.count("#e08a3c") == 1
    assert colours.count("#6b9bd1") >= 3


@pytest.mark.parametrize("budget", [1, 7, 999, 1000, 1024, 8192])
def test_lengths_just_at_the_budget_are_not_shown_as_cut(budget: int) -> None:
    thinking = [budget] * 90 + [max(1, budget // 2)] * 10
    whole = log([t + 50 for t in thinking], thinking=thinking, prompt=[500] * 100)
    panel = Panel(title="t", source="s", requests=requests(whole, effort("high", budget, 512)))
    colours = [node.get("fill") for node in ET.fromstring(draw([panel])).iter(f"{SVG}rect")]
    assert colours
    assert "#e08a3c" not in colours


def test_bars_stay_inside_the_picture() -> None:
    root = drawn()
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for node in root.iter(f"{SVG}rect"):
        left, top = float(node.get("x", 0)), float(node.get("y", 0))
        assert 0 <= left <= left + float(node.get("width", 0)) <= width
        assert 0 <= top <= top + float(node.get("height", 0)) <= height


def test_names_cannot_break_out_of_the_text() -> None:
    assert "</svg><script>" in texts(drawn(title="</svg><script>"))[0]
    assert any('a"&<b>.csv' in text for text in texts(drawn(source='a"&<b>.csv')))
