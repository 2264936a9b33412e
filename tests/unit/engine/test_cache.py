"""The cache: where it is, how names change, who waits for whom, who may read."""

import os
import threading
from pathlib import Path

import pytest

from engine import cache


def test_root_is_the_first_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("REASONINGPOOL_CACHE", raising=False)
    assert cache.root() == Path("/home/someone/.cache/reasoningpool")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache.root() == Path("/caches/reasoningpool")
    monkeypatch.setenv("REASONINGPOOL_CACHE", "~/mine")
    assert cache.root() == Path("/home/someone/mine")


def test_hash_depends_on_every_part_and_on_where_parts_end() -> None:
    assert cache.content_hash("a", "b") == cache.content_hash(b"a", b"b")
    assert len({cache.content_hash(*parts) for parts in (["a", "b"], ["ab"], ["ab", ""], ["b", "a"], [])}) == 5


def test_lock_makes_the_second_one_wait_and_says_so(tmp_path: Path) -> None:
    path, order, told = tmp_path / "new" / "x.lock", [], threading.Event()

    def second() -> None:
        with cache.locked(path, lambda line: told.set()):
            order.append("second")

    with cache.locked(path, order.append):
        waiting = threading.Thread(target=second)
        waiting.start()
        assert told.wait(5)
        order.append("first")
    waiting.join(5)
    assert order == ["first", "second"]


def test_lock_that_is_never_released_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_LOCK_DEADLINE_S", 0.0)
    path = tmp_path / "x.lock"
    with (
        cache.locked(path, print),
        pytest.raises(TimeoutError, match="another process has held"),
        cache.locked(path, print),
    ):
        pass


def test_everything_becomes_readable_and_nothing_becomes_writable(tmp_path: Path) -> None:
    private = os.umask(0o077)
    try:
        folder = tmp_path / "a" / "b"
        folder.mkdir(parents=True)
        program, data, outside = folder / "program", folder / "data", tmp_path / "outside"
        for path, mode in ((program, 0o700), (data, 0o600), (outside, 0o600)):
            path.write_text("x")
            path.chmod(mode)
        (folder / "link").symlink_to(outside)
    finally:
        os.umask(private)
    cache.make_world_readable(tmp_path / "a")
    assert {path: path.stat().st_mode & 0o777 for path in (folder.parent, folder, program, data, outside)} == {
        folder.parent: 0o755,
        folder: 0o755,
        program: 0o755,
        data: 0o644,
        outside: 0o600,
    }
