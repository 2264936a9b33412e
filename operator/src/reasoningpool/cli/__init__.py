"""The command line: run the operator, print the CRD, render and explain pools without a cluster."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click
import yaml
from typing_extensions import override

from reasoningpool.api.resource import Problem
from reasoningpool.api.text import printable
from reasoningpool.cli import explain as explaining
from reasoningpool.cli.files import FileError, PoolFile, read_pools
from reasoningpool.cli.running import run
from reasoningpool.planning.offline import OfflinePool, offline_pool
from reasoningpool.resolution.resolve import ResolutionSettings

EXIT_BAD_FILE = 2
EXIT_DOES_NOT_FIT = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="reasoningpool")
def main() -> None:
    """Serve reasoning models with vLLM on Kubernetes, sized from token budgets."""


main.add_command(run)


@main.command()
def crd() -> None:
    """Print the CustomResourceDefinition."""
    from reasoningpool.api.crd import crd_yaml  # noqa: PLC0415 - only this command needs it

    click.echo(crd_yaml(), nl=False)


_service_accounts = click.option(
    "--allowed-service-account",
    "service_accounts",
    multiple=True,
    metavar="NAME",
    help="A service account that podOverrides may name; may be repeated.",
)


@main.command()
@click.argument("file")
@_service_accounts
def render(file: str, service_accounts: tuple[str, ...]) -> None:
    """Print the manifests a cluster would get for the pools in FILE, or on standard input (-)."""
    pools = [(read, _offline(read, service_accounts)) for read in _read(file)]
    manifests = [manifest for _, pool in pools for manifest in pool.manifests]
    click.echo(yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True), nl=False)
    _finish([pool for _, pool in pools])


@main.command()
@click.argument("file")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--curve", is_flag=True, help="Add throughput and preempted share against max_num_seqs.")
@_service_accounts
def explain(file: str, output: str, service_accounts: tuple[str, ...], *, curve: bool) -> None:
    r"""Show how the engine's limits follow from the budgets of the pools in FILE, step by step.

    With - for FILE they are read from standard input:

    \b
        kubectl get rp -o yaml | reasoningpool explain -
    """
    pools = [_offline(read, service_accounts) for read in _read(file)]
    if output == "json":
        documents = [explaining.as_json(pool.name, pool.namespace, pool.tiers, curve=curve) for pool in pools]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        click.echo("\n\n".join(explaining.as_text(pool.name, pool.tiers, curve=curve) for pool in pools))
    _finish(pools, quiet=True)


class _Dumper(yaml.SafeDumper):
    """No anchors, and texts of several lines as blocks."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _read(file: str) -> tuple[PoolFile, ...]:
    try:
        return read_pools(file)
    except FileError as error:
        _fail(error.lines)


def _offline(read: PoolFile, service_accounts: tuple[str, ...]) -> OfflinePool:
    settings = ResolutionSettings(allowed_service_accounts=frozenset(service_accounts))
    pool = offline_pool(read.pool, settings)
    if pool.errors:
        _fail(tuple(read.locate(Problem(error.path, error.message)) for error in pool.errors))
    for warning in pool.warnings:
        _complain("warning", read.locate(Problem(warning.path, warning.message)))
    return pool


def _complain(kind: str, text: str) -> None:
    click.echo(f"{kind}: {printable(text)}", err=True)


def _fail(lines: tuple[str, ...]) -> NoReturn:
    for line in lines:
        _complain("error", line)
    sys.exit(EXIT_BAD_FILE)


def _finish(pools: list[OfflinePool], *, quiet: bool = False) -> None:
    """Exit with 3 when a tier does not fit; its numbers are said unless they were printed already."""
    misfits = [message for pool in pools for message in pool.misfits]
    if misfits:
        for message in () if quiet else misfits:
            _complain("error", message)
        sys.exit(EXIT_DOES_NOT_FIT)
