"""What commands on files of pools share: reading, the plan without a cluster, exit codes."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

import click

from reasoningpool.api.text import printable
from reasoningpool.cli.files import FileError, PoolFile, read_pools
from reasoningpool.planning.offline import OfflinePool, offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings

EXIT_BAD_FILE: Final = 2
EXIT_DOES_NOT_FIT: Final = 3

service_accounts_option = click.option(
    "--allowed-service-account",
    "service_accounts",
    multiple=True,
    metavar="NAME",
    help="A service account that podOverrides may name; may be repeated.",
)


def read(file: str) -> tuple[PoolFile, ...]:
    """The pools of a file; what is wrong with it ends the command."""
    try:
        return read_pools(file)
    except FileError as error:
        fail(error.lines)


def offline(found: PoolFile, service_accounts: tuple[str, ...]) -> OfflinePool:
    """A pool's plan without a cluster: warnings to standard error, errors end the command."""
    settings = ResolutionSettings(allowed_service_accounts=frozenset(service_accounts))
    pool = offline_pool(found.pool, settings)
    if pool.errors:
        fail(tuple(found.locate(error) for error in pool.errors))
    for warning in pool.warnings:
        complain("warning", found.locate(warning))
    return pool


def complain(kind: str, text: str) -> None:
    """One line to standard error, without what a terminal would act on."""
    click.echo(f"{kind}: {printable(text)}", err=True)


def fail(lines: tuple[str, ...]) -> NoReturn:
    """Say what is wrong, one line each, and exit with 2."""
    for line in lines:
        complain("error", line)
    sys.exit(EXIT_BAD_FILE)


def finish(pools: list[OfflinePool], *, quiet: bool = False) -> None:
    """Exit with 3 when a tier does not fit; its numbers are said unless they were printed already."""
    misfits = [message for pool in pools for message in pool.misfits]
    if misfits:
        for message in () if quiet else misfits:
            complain("error", message)
        sys.exit(EXIT_DOES_NOT_FIT)
