"""`reasoningpool plan`: replicas, latencies and costs of the pools in a file for a request rate."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from reasoningpool.cli.options import service_accounts_option
from reasoningpool.cli.output import EXIT_DOES_NOT_FIT, fail
from reasoningpool.requests.columns import Role
from reasoningpool.requests.distribution import parse_percentiles
from reasoningpool.requests.errors import CapacityError
from reasoningpool.requests.log_fields import TimeUnit

_MOST_RATE = 1e6


class _Keyed(click.ParamType[tuple[str | None, Any]]):
    """`[KEY=]VALUE`, read by `convert_value`; the key is None where it may be left out and is."""

    def __init__(self, name: str, value: Callable[[str], Any], *, key_needed: bool = False) -> None:
        self.name = name
        self._value = value
        self._key_needed = key_needed

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, Any]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).rpartition("=")
        if self._key_needed and not equals:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        try:
            return key.strip() or None, self._value(rest)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _number(low: float, high: float, what: str) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not isfinite(value) or not low < value <= high:
            raise CapacityError(f"{text[:40]!r} is not {what}: a number above {low:g}, at most {high:g}")
        return value

    return convert


class _Number(click.ParamType[float]):
    """A number in bounds, the lower one excluded."""

    def __init__(self, name: str, low: float, high: float) -> None:
        self.name = name
        self._convert = _number(low, high, name.lower())

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self._convert(str(value))
        except CapacityError as error:
            self.fail(str(error), param, ctx)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file")
@click.option("--tier", "tiers", multiple=True, metavar="NAME", help="Plan this tier only; may be repeated.")
@click.option("--trace", metavar="FILE", help="Request log: CSV or JSONL, plain or gzip (- for standard input).")
@click.option(
    "--distribution",
    "distributions",
    multiple=True,
    type=_Keyed("[EFFORT=]P50,P90,P99", parse_percentiles),
    help="Percentiles of output tokens (thinking and answer); may be repeated per effort.",
)
@click.option(
    "--prompt-distribution",
    "prompt_distributions",
    multiple=True,
    type=_Keyed("[EFFORT=]P50,P90,P99", parse_percentiles),
    help="Percentiles of prompt tokens. Default: the tier's tokenDistribution, else promptTokens.",
)
@click.option("--metrics", metavar="FILE_OR_URL", help="A vLLM /metrics page: its length histograms are used.")
@click.option(
    "--prometheus", metavar="URL", help="A Prometheus that scrapes vLLM: the same histograms of all replicas."
)
@click.option("--window", metavar="DURATION", help="How far --prometheus looks back, such as 6h. Default: 7d.")
@click.option(
    "--rate",
    "rates",
    multiple=True,
    type=_Keyed("[TIER=]R", _number(0, _MOST_RATE, "a rate in requests per second")),
    help="Requests per second; may be repeated per tier. Default: what the log or Prometheus shows at its busiest.",
)
@click.option("--price-per-gpu-hour", type=_Number("PRICE", 0, 1e6), help="For costs, in any currency.")
@click.option(
    "--effort-share",
    "shares",
    multiple=True,
    type=_Keyed("EFFORT=PERCENT", _number(0, 1e6, "a share"), key_needed=True),
    help="Share of requests of an effort, if the log does not record it; any scale. Default: the tier's sharePercent.",
)
@click.option(
    "--thinking-share",
    type=_Number("PERCENT", 0, 100),
    help="Part of the output that is thinking, if the log does not record it. Default: the ratio of the budgets.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    type=_Keyed("ROLE=NAME", str, key_needed=True),
    help=f"Column of the log by role ({', '.join(Role)}); usual names are known.",
)
@click.option(
    "--time-unit", type=click.Choice([unit.value for unit in TimeUnit]), help="Unit of the log's numeric times."
)
@click.option(
    "--percentile",
    type=click.Choice(["50", "90", "99"]),
    default="90",
    show_default=True,
    help="Percentile of requests that must keep the tier's objectives.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--svg", type=click.Path(dir_okay=False), help="Also draw lengths against budgets into this file.")
@service_accounts_option
def plan(file: str, output: str, svg: str | None, service_accounts: tuple[str, ...], **options: Any) -> None:
    """Plan replicas, GPUs, latencies and costs of the pools in FILE for a request rate.

    Lengths come from one of --trace, --distribution, --metrics and --prometheus, else from the file itself. Times and
    costs are estimates. Exit code 2: input that cannot be used; 3: a tier does not fit, or no number of replicas
    keeps its objectives.
    """
    # Imports of a second that `--help` goes without.
    from reasoningpool.cli.plan import as_json, as_text, picture, source  # noqa: PLC0415
    from reasoningpool.cli.plan import pools as plan_pools  # noqa: PLC0415
    from reasoningpool.cli.pools import offline, read  # noqa: PLC0415

    request = source.Request(
        file=file,
        tiers=options["tiers"],
        trace=options["trace"],
        distributions=_unique(options["distributions"], "--distribution"),
        prompt_distributions=_unique(options["prompt_distributions"], "--prompt-distribution"),
        metrics=options["metrics"],
        prometheus=options["prometheus"],
        window=options["window"],
        rates=_unique(options["rates"], "--rate"),
        price=options["price_per_gpu_hour"],
        shares={str(key): share for key, share in _unique(options["shares"], "--effort-share").items()},
        thinking_share=None if options["thinking_share"] is None else options["thinking_share"] / 100,
        columns=_roles(_unique(options["columns"], "--column")),
        time_unit=None if options["time_unit"] is None else TimeUnit(options["time_unit"]),
        percentile=int(options["percentile"]),
    )
    request.check()
    pools = [(found.pool, offline(found, service_accounts)) for found in read(file)]
    try:
        planned = plan_pools.plan_pools(pools, request)
    except source.LengthsError as error:
        fail((str(error),))
    if svg is not None:
        _write(svg, picture.as_svg(planned))
    if output == "json":
        documents = [as_json.as_json(pool) for pool in planned]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        click.echo("\n\n".join(as_text.as_text(pool) for pool in planned))
    if not all(pool.kept for pool in planned):
        raise SystemExit(EXIT_DOES_NOT_FIT)


def _unique(pairs: tuple[tuple[str | None, Any], ...], option: str) -> dict[str | None, Any]:
    found: dict[str | None, Any] = {}
    for key, value in pairs:
        if key in found:
            raise click.UsageError(f"{option} is given twice{f' for {key}' if key else ''}")
        found[key] = value
    return found


def _roles(columns: dict[str | None, str]) -> dict[Role, str]:
    try:
        return {Role(str(role)): name for role, name in columns.items()}
    except ValueError as error:
        raise click.UsageError(f"--column: {error}; roles are {', '.join(Role)}") from None


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        fail((f"{path}: cannot be written: {error.strerror}",))
