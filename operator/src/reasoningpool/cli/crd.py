"""`reasoningpool crd`: the CustomResourceDefinition."""

from __future__ import annotations

import click


@click.command()
def crd() -> None:
    """Print the CustomResourceDefinition."""
    from reasoningpool.api.crd import crd_yaml  # noqa: PLC0415 - `--help` goes without the models

    click.echo(crd_yaml(), nl=False)
