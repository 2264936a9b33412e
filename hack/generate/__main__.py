"""`python -m generate` writes the generated files; with `--check` it compares them and exits with 1 if any is stale."""

from __future__ import annotations

import sys

import click

from generate import stale, write


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a file is stale.")
def main(*, check: bool) -> None:
    """Write the files that are made from the code."""
    if not check:
        for path in write():
            click.echo(f"written: {path}")
        return
    found = stale()
    for path in found:
        click.echo(f"stale: {path} (run make generate)", err=True)
    sys.exit(1 if found else 0)


main()
