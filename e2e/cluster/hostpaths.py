"""Folders of the host inside the containers of an image, by a mutating policy of the test cluster.

End-to-end tests run scratch images whose programs are the host's own, mounted read-only. What the operator renders
never mentions these folders: the policy adds them when a pod is created.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def policy(image: str, paths: Mapping[str, str]) -> dict[str, Any]:
    """A MutatingAdmissionPolicy and its binding, as a List.

    Each container whose image is `image` gets the folders of the host (host path -> mount path), read-only.
    """
    name = policy_name(image)
    mounts = {f"host-{_digest(host)}": (host, mount) for host, mount in sorted(paths.items())}
    volumes = [f"Object.spec.volumes{{name: {_cel(n)}, hostPath: {_host_path(h)}}}" for n, (h, _) in mounts.items()]
    parts = [f"volumes: [{', '.join(volumes)}]"]
    for kind in ("containers", "initContainers"):
        mount_type = f"Object.spec.{kind}.volumeMounts"
        fields = [
            f"{mount_type}{{name: {_cel(n)}, mountPath: {_cel(m)}, readOnly: true}}" for n, (_, m) in mounts.items()
        ]
        ours = f"object.spec.?{kind}.orValue([]).filter(c, c.image == {_cel(image)})"
        parts.append(f"{kind}: {ours}.map(c, Object.spec.{kind}{{name: c.name, volumeMounts: [{', '.join(fields)}]}})")
    uses = [
        f"object.spec.?{kind}.orValue([]).exists(c, c.image == {_cel(image)})"
        for kind in ("containers", "initContainers")
    ]
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "matchConditions": [{"name": "uses-the-image", "expression": " || ".join(uses)}],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{{', '.join(parts)}}}}}"},
            }
        ],
    }
    api = "admissionregistration.k8s.io/v1"
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": api,
                "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": {"policyName": name},
            },
        ],
    }


def policy_name(image: str) -> str:
    """The name of the policy for an image."""
    return f"host-paths-{_digest(image)}"


def probe(image: str) -> dict[str, Any]:
    """A pod that is only ever created as a dry run, to see whether the API server uses the policy already."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": policy_name(image), "namespace": "default"},
        "spec": {"containers": [{"name": "probe", "image": image}]},
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _cel(text: str) -> str:
    """A CEL string literal (JSON's escapes are a part of CEL's)."""
    return json.dumps(text)


def _host_path(path: str) -> str:
    return f"Object.spec.volumes.hostPath{{path: {_cel(path)}}}"
