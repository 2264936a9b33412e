"""`reasoningpool run`: the operator itself, with the options that `Settings` declares."""

from __future__ import annotations

import logging
import os
import re
import sys
from functools import partial
from math import isfinite
from typing import Any

import click
from typing_extensions import override

from reasoningpool.process import logs
from reasoningpool.process.settings import Declared, Settings, declared, unknown_variables

log = logging.getLogger(__name__)


class _Pattern(click.ParamType[str]):
    """Text of a certain form; an environment variable separates several by commas or spaces."""

    def __init__(self, pattern: re.Pattern[str], name: str) -> None:
        self.name = name
        self._pattern = pattern

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        # Empty is the default of an option that may be left out.
        if value and not self._pattern.fullmatch(str(value)):
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return str(value)

    @override
    def split_envvar_value(self, rv: str) -> list[str]:
        # A variable of separators alone must not read as one that is not set: it is refused as a name.
        return [part for part in re.split(r"[\s,]+", rv) if part] or [rv]


class _Seconds(click.FloatRange):
    """A float in a range; NaN is in none."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def _type(entry: Declared) -> click.ParamType[Any] | type:
    option = entry.option
    if entry.choices:
        return click.Choice(entry.choices)
    if option.pattern is not None:
        return _Pattern(option.pattern, option.pattern_name)
    if entry.type is int:
        return click.IntRange(option.minimum, option.maximum)
    if entry.type is float:
        return _Seconds(option.minimum, option.maximum, min_open=option.above_minimum)
    return entry.type


def _option(entry: Declared) -> click.Option:
    flag = f"--{entry.name}/--no-{entry.name}" if entry.type is bool else f"--{entry.name}"
    return click.Option(
        [flag, entry.field],
        type=_type(entry),
        multiple=entry.repeated,
        default=entry.default,
        show_default=entry.option.default_text or True,
        envvar=entry.variable,
        show_envvar=True,
        metavar=entry.option.metavar or None,
        help=entry.option.help + (" May be repeated." if entry.repeated else ""),
    )


def _run(**values: Any) -> None:
    """Run the operator.

    Each option may also be set by its environment variable; a flag wins over it. A variable takes several values
    separated by commas.
    """
    settings = Settings(**values)
    logs.configure(style=settings.log_format, level=settings.log_level)
    _check_environment()

    # Imports of seconds that `--help` and a wrong option go without.
    from reasoningpool.planning.plan import PlanningSettings, plan, plan_failure  # noqa: PLC0415
    from reasoningpool.process.operator import run as run_operator  # noqa: PLC0415
    from reasoningpool.resolution.resolve import ResolutionSettings  # noqa: PLC0415

    planning = PlanningSettings(
        resolution=ResolutionSettings(
            allowed_service_accounts=frozenset(settings.allowed_service_accounts),
            runtime_image=settings.runtime_image or None,
        )
    )
    sys.exit(run_operator(settings, planner=partial(plan, settings=planning), plan_failure=plan_failure))


def _check_environment() -> None:
    """A misspelled option ends the start, or the operator would serve more than its owner wrote.

    Raises:
        click.UsageError: A variable looks like that of an option.
    """
    for variable in unknown_variables(os.environ):
        if variable.nearest is not None:
            raise click.UsageError(f"unknown environment variable {variable.name}; did you mean {variable.nearest}?")
        log.warning("environment variable %s is ignored: no option of the operator has that name", variable.name)


run = click.Command(
    "run",
    callback=_run,
    params=[_option(entry) for entry in declared()],
    help=_run.__doc__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
