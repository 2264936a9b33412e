"""Histograms over the network, from a real HTTP server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from urllib.parse import parse_qs, urlsplit

import pytest

from reasoningpool.adapters.metrics_source import PrometheusSource, SourceError, fetch_page, is_address
from reasoningpool.requests.histograms import OUTPUT, PROMPT, Histogram

Answer = Callable[[str], tuple[int, bytes]]


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answer(self.path)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def vector(*rows: tuple[dict[str, str], str]) -> bytes:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def prometheus(queries: list[str]) -> Answer:
    """Answers as Prometheus 2.42 answered these queries, with small numbers."""

    def answer(path: str) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(path).query)["query"][0]
        queries.append(query)
        if query.startswith("max_over_time"):
            return 200, vector(({}, "2.5"))
        if "_sum[" in query:
            return 200, vector(({"model_name": "m"}, "40"), ({"model_name": "idle"}, "NaN"))
        return 200, vector(
            ({"le": "10.0", "model_name": "m"}, "3"),
            ({"le": "+Inf", "model_name": "m"}, "4"),
        )

    return answer


def test_histograms_of_a_window_are_summed_by_model() -> None:
    queries: list[str] = []
    with served(prometheus(queries)) as url:
        found = PrometheusSource(url + "/", "6h").histograms()
    assert found == {"m": {metric: Histogram((10.0, inf), (3.0, 4.0), 40.0) for metric in (PROMPT, OUTPUT)}}
    assert all("[6h]" in query for query in queries)


def test_names_with_the_colon_replaced_are_asked_for_too() -> None:
    queries: list[str] = []
    with served(prometheus(queries)) as url:
        PrometheusSource(url, "7d").histograms()
    assert any(
        f"increase({OUTPUT}_bucket[7d]) or increase(vllm_request_generation_tokens_bucket[7d])" in query
        for query in queries
    )


def test_peak_rate_is_that_of_the_model() -> None:
    queries: list[str] = []
    with served(prometheus(queries)) as url:
        assert PrometheusSource(url, "7d").peak_rate('a"b') == 2.5
    assert 'model_name="a\\"b"' in queries[0]


def test_no_rate_where_nothing_was_served() -> None:
    with served(lambda _: (200, vector())) as url:
        assert PrometheusSource(url, "7d").peak_rate("m") is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: (200, vector()), "has no vllm:request_generation_tokens in the last 7d"),
        (lambda _: (400, b'{"status":"error","error":"bad duration"}'), "rejected the query: HTTP Status Code 400"),
        (lambda _: (200, b"<html>"), "does not answer as expected"),
        (lambda _: (200, b'{"data": {}}'), "does not answer as expected"),
        (lambda _: (200, b'{"data": {"result": [{"metric": {}}]}}'), "does not answer like Prometheus"),
        (lambda _: (200, vector(({"model_name": "m"}, "1"))), "of model 'm' has no bucket"),
    ],
)
def test_server_other_than_prometheus_is_one_line(answer: Answer, words: str) -> None:
    with served(answer) as url, pytest.raises(SourceError) as caught:
        PrometheusSource(url, "7d").histograms()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_page_is_fetched_and_errors_are_one_line() -> None:
    with served(lambda path: (200, b"up 1\n") if path == "/metrics" else (404, b"")) as url:
        assert fetch_page(f"{url}/metrics") == "up 1\n"
        with pytest.raises(SourceError, match="answers HTTP 404"):
            fetch_page(f"{url}/other")
    with pytest.raises(SourceError, match="cannot be reached"):
        fetch_page(f"{url}/metrics")


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b/"])
def test_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(SourceError):
        fetch_page(url)


@pytest.mark.parametrize(
    ("text", "expected"), [("http://a/metrics", True), ("https://a", True), ("page.txt", False), ("-", False)]
)
def test_addresses_differ_from_files(text, expected) -> None:
    assert is_address(text) is expected
