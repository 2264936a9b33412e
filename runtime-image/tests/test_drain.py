from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from reasoningpool_runtime import drain


class Pages:
    """A metrics page that changes with every look at it."""

    def __init__(self) -> None:
        self.counts = [2.0, 1.0, 0.0]
        self.looks = 0


@pytest.fixture
def pages() -> Iterator[tuple[Pages, str]]:
    state = Pages()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            count = state.counts[min(state.looks, len(state.counts) - 1)]
            state.looks += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'reasoningpool_requests_in_flight{{pid="1"}} {count}\nother 5\n'.encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state, f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_waits_until_nothing_is_in_flight(pages: tuple[Pages, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_POLL_SECONDS", 0.01)
    state, url = pages
    assert drain.wait_until_idle(url, 10)
    assert state.looks >= 5


def test_it_gives_up_when_time_is_over(pages: tuple[Pages, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_POLL_SECONDS", 0.01)
    state, url = pages
    state.counts = [1.0]
    assert not drain.wait_until_idle(url, 0.2)


def test_a_server_that_is_gone_has_nothing_in_flight() -> None:
    assert drain.wait_until_idle("http://127.0.0.1:9/metrics", 5)


def test_requests_of_all_processes_are_added_up() -> None:
    assert drain.in_flight("reasoningpool_requests_in_flight 2.0\n") == 2
    page = 'reasoningpool_requests_in_flight{pid="1"} 2.0\nreasoningpool_requests_in_flight{pid="2"} 3.0\n'
    assert drain.in_flight(page) == 5
    assert drain.in_flight("other 1\n") is None
