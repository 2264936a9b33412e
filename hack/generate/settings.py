"""docs/reference/settings.md from `process/settings.py`."""

from __future__ import annotations

from generate.markdown import code, page, table
from reasoningpool.process.settings import Declared, declared

_SOURCE = "operator/src/reasoningpool/process/settings.py"
_INTRO = """
Options of `reasoningpool run`. A flag wins over its environment variable, and that over the default. An option that may
be repeated takes several values in its variable, separated by commas. An unknown variable that looks like a misspelled
option ends the start; any other unknown `REASONINGPOOL_` variable is ignored with a warning."""


def settings_reference() -> str:
    """Each option with its variable, its values and its default."""
    rows = (
        (
            code(_flag(entry)) + (", may be repeated" if entry.repeated else ""),
            code(entry.variable),
            entry.option.help,
            _values(entry),
            entry.option.default_text or code(entry.default_text),
        )
        for entry in declared()
    )
    return page(
        _SOURCE, "Settings of the operator", _INTRO, table(("flag", "variable", "meaning", "values", "default"), rows)
    )


def _flag(entry: Declared) -> str:
    return f"--{entry.name}, --no-{entry.name}" if entry.type is bool else f"--{entry.name}"


def _values(entry: Declared) -> str:
    option = entry.option
    if entry.choices:
        return ", ".join(code(choice) for choice in entry.choices)
    if entry.type is bool:
        return "`true`, `false`"
    if option.minimum is not None and option.maximum is not None:
        bounds = f"{'above' if option.above_minimum else 'from'} {option.minimum:,}, at most {option.maximum:,}"
        return f"{'seconds' if entry.type is float else 'integer'}, {bounds}"
    return option.pattern_name or option.metavar.lower()
