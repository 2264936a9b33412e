"""Where `plan` gets lengths from: a log, stated percentiles, a metrics page, Prometheus, or the pool's own file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import click

from reasoningpool.adapters.metrics_source import PrometheusSource, SourceError, fetch_page, is_address
from reasoningpool.planning.offline import OfflineTier
from reasoningpool.requests.columns import Role
from reasoningpool.requests.errors import CapacityError, LogError
from reasoningpool.requests.histograms import OUTPUT, Histogram, page_histograms, requests_of
from reasoningpool.requests.lines import Lines
from reasoningpool.requests.log import RequestLog
from reasoningpool.requests.log_fields import TimeUnit
from reasoningpool.requests.read_log import read_log
from reasoningpool.requests.stated_requests import stated_requests
from reasoningpool.sizing import TokenQuantiles

DEFAULT_WINDOW = "7d"
_MOST_PAGE_BYTES = 64 << 20


class LengthsError(Exception):
    """A source of lengths that cannot be used; the message is one line with file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of `plan`. `thinking_share` is 0 to 1, shares are on any scale."""

    file: str
    tiers: tuple[str, ...]
    trace: str | None
    distributions: Mapping[str | None, TokenQuantiles]
    prompt_distributions: Mapping[str | None, TokenQuantiles]
    metrics: str | None
    prometheus: str | None
    window: str | None  # how far Prometheus looks back, None: not stated
    rates: Mapping[str | None, float]
    price: float | None
    shares: Mapping[str, float]
    thinking_share: float | None
    columns: Mapping[Role, str]
    time_unit: TimeUnit | None
    percentile: int

    @property
    def looks_back(self) -> str:
        """The window of Prometheus, a PromQL duration."""
        return self.window or DEFAULT_WINDOW

    def check(self) -> None:
        """Raise `click.UsageError` for options that exclude each other."""
        sources = {
            "--trace": self.trace is not None,
            "--distribution": bool(self.distributions),
            "--metrics": self.metrics is not None,
            "--prometheus": self.prometheus is not None,
        }
        given = [name for name, used in sources.items() if used]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(given)} exclude each other: lengths come from one source")
        if self.trace == "-" and self.file == "-":
            raise click.UsageError("FILE and --trace cannot both be standard input")
        if self.prompt_distributions and given not in ([], ["--distribution"]):
            raise click.UsageError(f"--prompt-distribution goes with --distribution, not with {given[0]}")
        for option, used, source in (
            ("--window", self.window is not None, "--prometheus"),
            ("--column", bool(self.columns), "--trace"),
            ("--time-unit", self.time_unit is not None, "--trace"),
        ):
            if used and source not in given:
                raise click.UsageError(f"{option} goes with {source}, which is not given")


@dataclass(slots=True)
class Source:
    """Where lengths come from; what serves all tiers is read once."""

    request: Request
    _log: RequestLog | None = None
    _histograms: dict[str, dict[str, Histogram]] = field(default_factory=dict)
    _prometheus: PrometheusSource | None = None

    @property
    def words(self) -> str:
        """The source in words."""
        request = self.request
        name = request.trace or request.metrics or request.prometheus
        if name is not None:
            return "standard input" if name == "-" else name
        return "--distribution" if request.distributions else request.file

    @property
    def is_shared(self) -> bool:
        """Whether all tiers get the same lengths."""
        return self.request.trace is not None

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turns what is wrong with the source into one line with its name."""
        name = "<stdin>" if self.words == "standard input" else self.words
        try:
            yield
        except LogError as error:
            raise LengthsError(f"{name}{'' if error.line is None else f':{error.line}'}: {error}") from None
        except (CapacityError, SourceError) as error:
            raise LengthsError(f"{name}: {error}") from None
        except OSError as error:
            raise LengthsError(f"{name}: cannot be read: {error.strerror or error}") from None

    def log_of(self, tier: OfflineTier) -> RequestLog:
        """The requests a tier is planned for."""
        request = self.request
        if request.trace is not None:
            return self._trace(request.trace)
        if request.metrics is not None or request.prometheus is not None:
            return self._from_histograms(tier)
        efforts = tier.effective.sizing_input.efforts
        return stated_requests(efforts, request.distributions, request.prompt_distributions, request.shares or None)

    def peak_rate(self, tier: OfflineTier) -> float | None:
        """What Prometheus shows of the tier's model."""
        if self._prometheus is None:
            return None
        with self.failures():
            return self._prometheus.peak_rate(self._model(tier)[0])

    def _trace(self, path: str) -> RequestLog:
        if self._log is None:
            with _opened(path) as stream:
                self._log = read_log(stream, columns=self.request.columns, time_unit=self.request.time_unit)
        return self._log

    def _from_histograms(self, tier: OfflineTier) -> RequestLog:
        if not self._histograms:
            self._histograms = self._read_histograms()
        model, note = self._model(tier)
        found = requests_of(self._histograms[model])
        return replace(found, notes=(*found.notes, note))

    def _read_histograms(self) -> dict[str, dict[str, Histogram]]:
        request = self.request
        if request.prometheus is not None:
            if not is_address(request.prometheus):
                raise CapacityError("is not an http:// or https:// address")
            self._prometheus = PrometheusSource(request.prometheus, request.looks_back)
            return self._prometheus.histograms()
        assert request.metrics is not None  # the caller's case
        if is_address(request.metrics):
            return page_histograms(fetch_page(request.metrics))
        with _opened(request.metrics) as stream:
            return page_histograms(_page(stream))

    def _model(self, tier: OfflineTier) -> tuple[str, str]:
        """The model name of the histograms that is this tier's, and what was assumed."""
        served = tier.effective.model.served_name
        names = [name for name, metrics in self._histograms.items() if OUTPUT in metrics]
        if served in names:
            return served, f"histograms of model {served!r}, whichever tier served it"
        if len(names) == 1:
            return names[0], f"histograms of model {names[0]!r}: no other is there, though the tier serves {served!r}"
        raise CapacityError(
            f"has {OUTPUT} of {', '.join(map(repr, sorted(names)[:8]))}, none of the tier's served name {served!r}"
        )


def _page(stream: BinaryIO) -> str:
    lines: list[str] = []
    size = 0
    for line in Lines(stream):
        size += len(line)
        if size > _MOST_PAGE_BYTES:
            raise LogError(f"is larger than {_MOST_PAGE_BYTES >> 20} MiB")
        lines.append(line)
    return "".join(lines)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as stream:
        yield stream
