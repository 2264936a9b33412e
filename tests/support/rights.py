"""The operator's rights as the manifests grant them, on a test cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.core import Cluster

ACCOUNT = "reasoningpool-operator"


def limited_kubeconfig(
    cluster: Cluster, folder: Path, *, only_in: str | None = None, events: tuple[str, ...] | None = None
) -> tuple[Path, str]:
    """A kubeconfig with the rights of `operator/deploy`, and the namespace it has its Lease in.

    `only_in` grants the ClusterRole's rules in one namespace only, `events` other verbs on events.
    """
    system = cluster.new_namespace("system")
    for document in yaml.safe_load_all(cluster.kubectl("kustomize", "operator/deploy").stdout):
        if document["kind"] in {"Namespace", "Deployment"}:
            continue
        metadata, home = document["metadata"], system
        if document["kind"] in {"ClusterRole", "ClusterRoleBinding"}:
            metadata["name"] = system
            document.get("roleRef", {})["name"] = system
            if only_in is not None:
                document["kind"] = document["kind"].removeprefix("Cluster")
                document.get("roleRef", {})["kind"] = "Role"
                home = only_in
        if document["kind"] not in {"ClusterRole", "ClusterRoleBinding"}:
            metadata["namespace"] = home
        for subject in document.get("subjects", ()):
            subject["namespace"] = system
        for rule in document.get("rules", ()):
            if events is not None and rule["resources"] == ["events"]:
                rule["verbs"] = list(events)
        cluster.apply(document)
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", system).stdout.strip()
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    limited = folder / f"{system}.kubeconfig"
    limited.write_text(json.dumps(config))
    return limited, system
