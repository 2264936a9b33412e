"""The demo says what it waits for."""

from __future__ import annotations

import threading

import pytest

from demo import __main__ as demo


def test_a_long_wait_says_again_and_again_what_is_awaited_and_stops_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    twice = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            twice.set()

    monkeypatch.setattr(demo, "say", say)
    before = threading.active_count()
    with demo.awaiting(lambda: f"replica {len(said)}", every=0.01):
        assert twice.wait(30)
    assert said[:2] == ["still waiting for replica 0", "still waiting for replica 1"]
    assert threading.active_count() == before
