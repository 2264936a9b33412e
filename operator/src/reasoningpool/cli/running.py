"""`reasoningpool run`: the operator itself."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from reasoningpool.planning import PlanningSettings, plan, plan_failure
from reasoningpool.resolution.resolve import ResolutionSettings


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--namespace", "namespaces", multiple=True, help="Serve this namespace only; may be repeated. Default: all."
)
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: the pod's account, else KUBECONFIG.")
@click.option("--context", help="Context of the kubeconfig. Default: the current one.")
@click.option(
    "--leader-election/--no-leader-election", default=None, help="Write only while holding a Lease. Default: on."
)
@click.option("--lease-name", help="Default: reasoningpool-operator.")
@click.option("--lease-namespace", help="Default: the operator's own namespace.")
@click.option("--health-port", type=int, help="Port of /healthz and /readyz; -1 serves none. Default: 8080.")
@click.option("--log-format", type=click.Choice(["json", "text"]), help="Default: json.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: info.")
@click.option("--resync-seconds", type=float, help="How often a pool at rest is looked at again. Default: 300.")
@click.option("--concurrency", type=int, help="API requests under way at once. Default: 16.")
@click.option(
    "--allowed-service-account",
    "allowed_service_accounts",
    multiple=True,
    metavar="NAME",
    help="A service account that podOverrides may name; may be repeated.",
)
def run(**flags: Any) -> None:
    """Run the operator. Every option may also be set as REASONINGPOOL_<OPTION> in the environment."""
    from reasoningpool.process.operator import run as run_operator  # noqa: PLC0415 - imports kopf, which takes seconds
    from reasoningpool.process.settings import BadSettings, Settings  # noqa: PLC0415 - see above

    try:
        settings = Settings.of(**{name: value if value != () else None for name, value in flags.items()})
    except BadSettings as error:
        raise click.UsageError(str(error)) from None
    planning = PlanningSettings(
        resolution=ResolutionSettings(allowed_service_accounts=frozenset(settings.allowed_service_accounts))
    )
    sys.exit(run_operator(settings, planner=partial(plan, settings=planning), plan_failure=plan_failure))
