"""`reasoningpool render`: the manifests of pools in a file."""

from __future__ import annotations

import codecs
import sys

import click

from reasoningpool.cli.options import service_accounts_option


@click.command()
@click.argument("file")
@service_accounts_option
def render(file: str, service_accounts: tuple[str, ...]) -> None:
    """Print the manifests a cluster would get for the pools in FILE, or on standard input (-)."""
    # Imports of half a second that `--help` goes without.
    from reasoningpool.cli.manifests import yaml_text  # noqa: PLC0415
    from reasoningpool.cli.pools import finish, offline, read  # noqa: PLC0415

    pools = [(found, offline(found, service_accounts)) for found in read(file)]
    manifests = [manifest for _, pool in pools for manifest in pool.manifests]
    # Where the output has no Unicode its characters are escaped: a replaced one would be another manifest.
    unicode = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    click.echo(yaml_text(manifests, allow_unicode=unicode), nl=False)
    finish([pool for _, pool in pools])
