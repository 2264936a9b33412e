"""What commands on files of pools share: reading, and the plan without a cluster."""

from __future__ import annotations

import sys

from reasoningpool.cli.files import FileError, PoolFile, read_pools
from reasoningpool.cli.output import EXIT_DOES_NOT_FIT, complain, fail
from reasoningpool.planning.offline import OfflinePool, offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings


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


def finish(pools: list[OfflinePool], *, quiet: bool = False) -> None:
    """Exit with 3 when a tier does not fit; its numbers are said unless they were printed already."""
    misfits = [message for pool in pools for message in pool.misfits]
    if misfits:
        for message in () if quiet else misfits:
            complain("error", message)
        sys.exit(EXIT_DOES_NOT_FIT)
