"""Options that several commands have."""

from __future__ import annotations

import click

service_accounts_option = click.option(
    "--allowed-service-account",
    "service_accounts",
    multiple=True,
    metavar="NAME",
    help="A service account that podOverrides may name; may be repeated.",
)
