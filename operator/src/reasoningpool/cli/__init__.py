"""The command line: run the operator, print the CRD, render and explain pools without a cluster."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from contextlib import suppress
from typing import Any, Final

import click
import yaml
from typing_extensions import override

from reasoningpool.cli import explain as explaining
from reasoningpool.cli.plan.command import plan
from reasoningpool.cli.pools import complain, finish, offline, read, service_accounts_option
from reasoningpool.cli.running import run

EXIT_UNWRITABLE: Final = 1
# A closed pipe is click's to handle.
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Main(click.Group):
    """Output that cannot be written, or that the terminal cannot show, is no traceback."""

    @override
    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            complain("error", f"the output cannot be written: {error.strerror}")
            _drop_output()
            sys.exit(EXIT_UNWRITABLE)


def _drop_output() -> None:
    """What is still buffered goes nowhere, or the interpreter would fail on it again at its end."""
    with suppress(OSError):  # io.UnsupportedOperation too: a stream without a descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="reasoningpool")
def main() -> None:
    """Serve reasoning models with vLLM on Kubernetes, sized from token budgets."""


main.add_command(run)
main.add_command(plan)


@main.command()
def crd() -> None:
    """Print the CustomResourceDefinition."""
    from reasoningpool.api.crd import crd_yaml  # noqa: PLC0415 - only this command needs it

    click.echo(crd_yaml(), nl=False)


@main.command()
@click.argument("file")
@service_accounts_option
def render(file: str, service_accounts: tuple[str, ...]) -> None:
    """Print the manifests a cluster would get for the pools in FILE, or on standard input (-)."""
    pools = [(found, offline(found, service_accounts)) for found in read(file)]
    manifests = [manifest for _, pool in pools for manifest in pool.manifests]
    # Where the output has no Unicode its characters are escaped: a replaced one would be another manifest.
    unicode = codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    click.echo(yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=unicode), nl=False)
    finish([pool for _, pool in pools])


@main.command()
@click.argument("file")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--curve", is_flag=True, help="Add throughput and preempted share against max_num_seqs.")
@service_accounts_option
def explain(file: str, output: str, service_accounts: tuple[str, ...], *, curve: bool) -> None:
    """Show how the engine's limits follow from the budgets of the pools in FILE, step by step.

    With - for FILE they are read from standard input:

    \b
        kubectl get rp -o yaml | reasoningpool explain -
    """  # noqa: D301 - click knows the block by its backspace
    pools = [offline(found, service_accounts) for found in read(file)]
    if output == "json":
        documents = [explaining.as_json(pool.name, pool.namespace, pool.tiers, curve=curve) for pool in pools]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        click.echo("\n\n".join(explaining.as_text(pool.name, pool.tiers, curve=curve) for pool in pools))
    finish(pools, quiet=True)


class _Dumper(yaml.SafeDumper):
    """No anchors, and texts of several lines as blocks."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
