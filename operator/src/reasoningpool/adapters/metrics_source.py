"""vLLM's length histograms over the network: a server's `/metrics` page, or Prometheus.

The only importer of the Prometheus client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from reasoningpool.requests.errors import CapacityError
from reasoningpool.requests.histograms import OUTPUT, PROMPT, Histogram

_TIMEOUT_SECONDS: Final = 10
_QUERY_TIMEOUT_SECONDS: Final = 60  # a week of histograms of many replicas takes Prometheus a while
_MOST_BYTES: Final = 64 << 20
_RATE_WINDOW: Final = "5m"
_RATE_STEP: Final = "1m"
_T = TypeVar("_T")


class SourceError(Exception):
    """An address that gives no metrics; the message is one line."""


def fetch_page(url: str) -> str:
    """The text of a `/metrics` page.

    Raises:
        SourceError: it cannot be had within 10 s, or is larger than 64 MiB.
    """

    def get() -> str:
        with requests.get(url, timeout=_TIMEOUT_SECONDS, stream=True) as response:
            if response.status_code != requests.codes.ok:
                raise SourceError(f"answers HTTP {response.status_code}")
            body = b""
            for part in response.iter_content(1 << 16):
                body += part
                if len(body) > _MOST_BYTES:
                    raise SourceError(f"is larger than {_MOST_BYTES >> 20} MiB")
            return body.decode("utf-8", errors="replace")

    return _reached(get)


class PrometheusSource:
    """Queries of one Prometheus. `window` is a PromQL duration such as 7d."""

    def __init__(self, url: str, window: str) -> None:
        self._window = window
        self._client = PrometheusConnect(
            url=url.rstrip("/"), retry=Retry(total=2, backoff_factor=0.2), timeout=_QUERY_TIMEOUT_SECONDS
        )

    def histograms(self) -> dict[str, dict[str, Histogram]]:
        """The two length histograms over the window by model name and metric, all replicas together.

        Raises:
            SourceError: Prometheus cannot be asked, or knows no such histogram.
        """
        found: dict[str, dict[str, Histogram]] = {}
        for metric in (PROMPT, OUTPUT):
            buckets: dict[str, dict[float, float]] = {}
            for labels, value in self._ask(f"sum by (le, model_name) ({self._increase(metric + '_bucket')})"):
                buckets.setdefault(labels.get("model_name", ""), {})[float(labels.get("le", "nan"))] = value
            totals = {
                labels.get("model_name", ""): value
                for labels, value in self._ask(f"sum by (model_name) ({self._increase(metric + '_sum')})")
            }
            for model, counts in buckets.items():
                try:
                    found.setdefault(model, {})[metric] = Histogram.of(counts, totals.get(model, 0.0))
                except CapacityError as error:
                    raise SourceError(f"{metric} of model {model!r} {error}") from None
        if not any(OUTPUT in metrics for metrics in found.values()):
            raise SourceError(f"has no {OUTPUT} in the last {self._window}")
        return found

    def peak_rate(self, model: str) -> float | None:
        """Most requests per second that ended over any 5 minutes of the window; None when there were none."""
        chosen = f'{{model_name="{_escaped(model)}"}}[{_RATE_WINDOW}]'
        rate = f"sum({_either('rate', f'{OUTPUT}_count', chosen)})"
        values = [value for _, value in self._ask(f"max_over_time(({rate})[{self._window}:{_RATE_STEP}])")]
        return values[0] if values and values[0] > 0 else None

    def _increase(self, metric: str) -> str:
        return _either("increase", metric, f"[{self._window}]")

    def _ask(self, query: str) -> Iterable[tuple[Mapping[str, str], float]]:
        answer: Any = _reached(lambda: self._client.custom_query(query))
        try:
            rows = [(row["metric"], float(row["value"][1])) for row in answer]
        except (KeyError, TypeError, ValueError, IndexError):
            raise SourceError("does not answer like Prometheus") from None
        return [(labels, value) for labels, value in rows if isfinite(value)]


def _either(function: str, metric: str, range_: str) -> str:
    """The function of a metric under its own name, or with the colon replaced, as Prometheus 2 may have stored it."""
    return f"{function}({metric}{range_}) or {function}({metric.replace(':', '_')}{range_})"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _reached(ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except requests.exceptions.Timeout:
        raise SourceError("does not answer in time") from None
    except requests.exceptions.SSLError:
        raise SourceError("has a certificate that is not trusted") from None
    except requests.exceptions.ConnectionError:
        raise SourceError("cannot be reached") from None
    except PrometheusApiClientException as error:
        raise SourceError(f"rejected the query: {str(error)[:200]}") from None
    except (requests.exceptions.RequestException, ValueError, KeyError) as error:
        raise SourceError(f"does not answer as expected: {type(error).__name__}") from None


def is_address(text: str) -> bool:
    """Whether a text is an http(s) address rather than a file.

    Raises:
        SourceError: it is an address that is not well formed.
    """
    if not text.lower().startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(text)
        well_formed = bool(parts.hostname) and parts.port != 0  # reading the port checks it
    except ValueError as error:
        raise SourceError(f"is not a valid address: {error}") from None
    if not well_formed:
        raise SourceError("is not a valid address: it names no host or port")
    return True
