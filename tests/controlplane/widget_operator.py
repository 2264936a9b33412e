"""The operator with one optional kind more, as a program: every pool gets a Widget where the cluster serves them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reasoningpool.objects import KINDS, Availability, Kind
from reasoningpool.objects.kinds import OWN

log = logging.getLogger("reasoningpool.widgets")

WIDGET = Kind(
    api_version="test.reasoningpool.io/v1",
    kind="Widget",
    plural="widgets",
    rank=9,
    watched=True,
    installed_with="the Widget operator",
    grants=OWN,
)
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{WIDGET.plural}.{WIDGET.group}"},
    "spec": {
        "group": WIDGET.group,
        "scope": "Namespaced",
        "names": {"kind": WIDGET.kind, "plural": WIDGET.plural},
        "versions": [
            {
                "name": WIDGET.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def with_widget(planner: Callable[..., Any]) -> Callable[..., Any]:
    """A planner that asks for a Widget named after the pool, but only where it can be applied."""

    def plan(snapshot: Any, **more: Any) -> Any:
        availability = snapshot.availability[WIDGET]
        # The real planner goes by the real table, in which there is no Widget.
        children = tuple(child for child in snapshot.children if child["kind"] != WIDGET.kind)
        failures = tuple(failure for failure in snapshot.failures if failure.key.kind != WIDGET.kind)
        planned = planner(replace(snapshot, children=children, failures=failures), **more)
        log.info("the plan sees Widgets %s", availability)
        if availability is not Availability.AVAILABLE or not planned.applies:
            return planned
        account = planned.applies[0].manifest
        meta = {**account["metadata"], "name": snapshot.pool["metadata"]["name"]}
        widget = {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": meta, "spec": {"size": 1}}
        return replace(planned, applies=(*planned.applies, replace(planned.applies[0], manifest=widget)))

    return plan


def main() -> None:
    from reasoningpool.cli import main as cli
    from reasoningpool.process import operator

    real = operator.Operator

    def with_table(settings: Any, *, planner: Any, plan_failure: Any) -> Any:
        return real(settings, planner=with_widget(planner), plan_failure=plan_failure, kinds=KINDS.with_kinds(WIDGET))

    operator.Operator = with_table  # type: ignore[assignment,misc]
    cli()


if __name__ == "__main__":
    main()
