"""`reasoningpool explain`: the calculation of pools in a file."""

from __future__ import annotations

import json

import click

from reasoningpool.cli.options import service_accounts_option


@click.command()
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
    # Imports of half a second that `--help` goes without.
    from reasoningpool.cli import explanation  # noqa: PLC0415
    from reasoningpool.cli.pools import finish, offline, read  # noqa: PLC0415

    pools = [offline(found, service_accounts) for found in read(file)]
    if output == "json":
        documents = [explanation.as_json(pool.name, pool.namespace, pool.tiers, curve=curve) for pool in pools]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        click.echo("\n\n".join(explanation.as_text(pool.name, pool.tiers, curve=curve) for pool in pools))
    finish(pools, quiet=True)
