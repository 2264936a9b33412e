"""The ConfigMap with Envoy's configuration."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.gateway.bootstrap import bootstrap
from reasoningpool.render.gateway.metadata import gateway_labels
from reasoningpool.render.gateway.types import StandaloneGateway
from reasoningpool.render.metadata import PoolIdentity, object_meta

BOOTSTRAP_FILE: Final = "envoy.json"


def config_map(pool: PoolIdentity, gateway: StandaloneGateway) -> Manifest:
    """The bootstrap as JSON; the same gateway gives the same text."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_meta(pool, names.gateway_name(pool.name), gateway_labels(pool)),
        "data": {BOOTSTRAP_FILE: bootstrap_text(gateway)},
    }


def bootstrap_text(gateway: StandaloneGateway) -> str:
    """The bootstrap as it is mounted."""
    return json.dumps(bootstrap(gateway), indent=1) + "\n"


def bootstrap_digest(gateway: StandaloneGateway) -> str:
    """Envoy reads its bootstrap once, so pods are replaced when this changes."""
    return hashlib.sha256(bootstrap_text(gateway).encode()).hexdigest()[:16]
