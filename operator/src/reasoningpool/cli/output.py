"""What every command writes to standard error, and the exit codes they share."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

import click

from reasoningpool.api.text import printable

EXIT_BAD_FILE: Final = 2
EXIT_DOES_NOT_FIT: Final = 3


def complain(kind: str, text: str) -> None:
    """One line to standard error, without what a terminal would act on."""
    click.echo(f"{kind}: {printable(text)}", err=True)


def fail(lines: tuple[str, ...]) -> NoReturn:
    """Say what is wrong, one line each, and exit with 2."""
    for line in lines:
        complain("error", line)
    sys.exit(EXIT_BAD_FILE)
