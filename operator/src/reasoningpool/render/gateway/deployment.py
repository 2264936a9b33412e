"""The Deployment of Envoy.

The server's defaults are written out, so that a diff against the cluster shows nothing that nobody chose.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.gateway.config_map import BOOTSTRAP_FILE, bootstrap_digest
from reasoningpool.render.gateway.metadata import gateway_labels, gateway_selector, pod_labels
from reasoningpool.render.gateway.service import REQUESTS_PORT_NAME
from reasoningpool.render.gateway.types import StandaloneGateway
from reasoningpool.render.metadata import PoolIdentity, object_meta
from reasoningpool.render.pod.security import container_security, pod_security
from reasoningpool.render.workload.service_account import service_account_name
from reasoningpool.resolution.types import EffectiveGateway

CONTAINER: Final = "envoy"
# On the pod template: changes with the bootstrap, which Envoy reads once.
ANNOTATION_BOOTSTRAP: Final = f"{names.GROUP}/bootstrap"
_CONFIG_FOLDER: Final = "/etc/envoy"
_CONFIG_VOLUME: Final = "config"
_HEALTH_PORT_NAME: Final = "health"
# Endpoint changes reach every proxy within a few seconds.
_SETTLE_SECONDS: Final = 10
# Envoy ends within a second of SIGTERM.
_EXIT_SECONDS: Final = 15
# Envoy starts a thread per core of the node otherwise; two carry thousands of streams of tokens.
_THREADS: Final = 2


def deployment(pool: PoolIdentity, effective: EffectiveGateway, gateway: StandaloneGateway) -> Manifest:
    """Pods of Envoy, replaced without a gap: a new one serves before an old one begins to drain."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": object_meta(pool, names.gateway_name(pool.name), gateway_labels(pool)),
        "spec": {
            "replicas": effective.replicas,
            "selector": {"matchLabels": gateway_selector(pool.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 3,
            "template": {
                "metadata": {
                    "labels": dict(sorted(pod_labels(pool).items())),
                    "annotations": {ANNOTATION_BOOTSTRAP: bootstrap_digest(gateway)},
                },
                "spec": _pod(pool, effective, gateway),
            },
        },
    }


def _pod(pool: PoolIdentity, effective: EffectiveGateway, gateway: StandaloneGateway) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "serviceAccountName": service_account_name(pool.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _SETTLE_SECONDS + gateway.longest_request_seconds + _EXIT_SECONDS,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": pod_security(None),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": gateway_selector(pool.name)},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        "containers": [_container(effective, gateway)],
        "volumes": [
            {"name": _CONFIG_VOLUME, "configMap": {"name": names.gateway_name(pool.name), "defaultMode": 0o644}}
        ],
    }
    if effective.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in effective.image_pull_secrets]
    return spec


def _container(effective: EffectiveGateway, gateway: StandaloneGateway) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": effective.image,
        "imagePullPolicy": "IfNotPresent",
        # Not the image's entry point, which wants to be root first.
        "command": ["envoy"],
        "args": [
            f"--config-path={_CONFIG_FOLDER}/{BOOTSTRAP_FILE}",
            f"--concurrency={_THREADS}",
            "--disable-hot-restart",
            "--log-level=warning",
        ],
        "ports": [
            {"name": REQUESTS_PORT_NAME, "containerPort": gateway.listen_port, "protocol": "TCP"},
            {"name": _HEALTH_PORT_NAME, "containerPort": gateway.health_port, "protocol": "TCP"},
        ],
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"memory": _quantity(gateway.memory_limit_bytes)},
        },
        "volumeMounts": [{"name": _CONFIG_VOLUME, "mountPath": _CONFIG_FOLDER, "readOnly": True}],
        "startupProbe": _probe(_ready(), period=1, failures=60),
        "readinessProbe": _probe(_ready(), period=2, failures=2),
        # Not by HTTP: while it drains Envoy answers 503 and must not be killed for it.
        "livenessProbe": _probe({"tcpSocket": {"port": _HEALTH_PORT_NAME}}, period=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": drain_command(gateway)}}},
        "securityContext": container_security(None, read_only_root=True),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def drain_command(gateway: StandaloneGateway, *, settle_seconds: int = _SETTLE_SECONDS) -> list[str]:
    """What runs before Envoy gets SIGTERM: it ends once no request runs, or the longest budget is over."""
    script = resources.files(__package__).joinpath("drain.sh").read_text(encoding="utf-8")
    numbers = (gateway.admin_port, settle_seconds, gateway.longest_request_seconds)
    return ["/bin/bash", "-c", script, "drain.sh", *map(str, numbers)]


def _quantity(size_bytes: int) -> str:
    """Whole MiB as the server stores them: 1Gi, not 1024Mi."""
    mebibytes = size_bytes >> 20
    return f"{mebibytes >> 10}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"


def _ready() -> dict[str, Any]:
    return {"httpGet": {"path": "/readyz", "port": _HEALTH_PORT_NAME, "scheme": "HTTP"}}


def _probe(action: dict[str, Any], *, period: int, failures: int) -> dict[str, Any]:
    return {
        **action,
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "successThreshold": 1,
        "failureThreshold": failures,
    }
