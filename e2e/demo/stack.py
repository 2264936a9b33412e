"""Puts the operator, an engine image and the tiny model into a test cluster's node.

The images hold nothing: what they run lies on this machine and is mounted read-only by an admission
policy of the test cluster. The operator renders the same pods as for real images.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine import environment, image, models

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.core import Cluster

ROOT: Final = Path(__file__).parents[2]
OPERATOR_IMAGE: Final = "reasoningpool.local/operator:dev"
RUNTIME_IMAGE: Final = "reasoningpool.local/runtime:dev"
MODEL_CLAIM: Final = "tiny-model"
OPERATOR_NAMESPACE: Final = "reasoningpool-system"
SERVED_SECONDS: Final = 30.0


def provide_engine(cluster: Cluster, progress: Callable[[str], None]) -> None:
    """The engine image on the node."""
    engine = environment.ensure(progress)
    content = image.content(engine)
    cluster.import_scratch_image(content.name, content.files, content.symlinks, content.env, content.entrypoint)
    cluster.mount_host_paths(content.name, {mount.host_path: mount.mount_path for mount in content.mounts})


def provide_runtime(cluster: Cluster) -> None:
    """The request runtime's image on the node: the package, and a shell that copies it."""
    source = ROOT / "runtime-image" / "src"
    files = {f"runtime/{path.relative_to(source)}": path for path in source.rglob("*.py")}
    cluster.import_scratch_image(
        RUNTIME_IMAGE,
        files=files,
        symlinks={name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")},
        env={"PATH": "/usr/bin:/bin"},
        entrypoint=("/bin/sh", "-ec", 'cp -R /runtime/. "${1:-/opt/reasoningpool}/"', "copy"),
        folders=("opt/reasoningpool",),
    )
    cluster.mount_host_paths(RUNTIME_IMAGE, {"/usr": "/usr"})


def provide_model(cluster: Cluster, namespace: str, progress: Callable[[str], None], name: str = "tiny-qwen3") -> None:
    """A volume with the tiny model and the claim for it that the example names."""
    folder = models.ensure_tiny(name, progress=progress)
    volume = f"{namespace}-{MODEL_CLAIM}"
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadOnlyMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": {"namespace": namespace, "name": MODEL_CLAIM},
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": MODEL_CLAIM, "namespace": namespace},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )


def provide_operator(cluster: Cluster) -> None:
    """The operator's image on the node: this checkout with its environment."""
    prefix, base = Path(sys.prefix), Path(sys.base_prefix)
    paths: dict[str, str] = {"/usr": "/usr", str(prefix): str(prefix), str(ROOT / "operator"): str(ROOT / "operator")}
    if not base.is_relative_to("/usr"):
        paths[str(base)] = str(base)
    cluster.import_scratch_image(
        OPERATOR_IMAGE,
        symlinks={name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")},
        env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{prefix}/bin:/usr/bin:/bin"},
        entrypoint=(str(prefix / "bin" / "python"), "-m", "reasoningpool.cli"),
        folders=("tmp", "etc"),
    )
    cluster.mount_host_paths(OPERATOR_IMAGE, paths)


def install_crd(cluster: Cluster) -> None:
    """The CRD; returns when the API server serves it."""
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds" / "reasoningpool.yaml"))
    deadline = time.monotonic() + SERVED_SECONDS
    # `kubectl wait` fails while the new object has no conditions at all.
    while cluster.kubectl("get", "reasoningpools", "-A", check=False).returncode:
        if time.monotonic() > deadline:
            msg = f"the API server does not serve ReasoningPools within {SERVED_SECONDS:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.1)


def install_operator(cluster: Cluster) -> None:
    """What `make install` does, with the image of `provide_operator`; returns when the operator is ready."""
    install_crd(cluster)
    built = cluster.kubectl("kustomize", str(ROOT / "operator" / "deploy")).stdout
    cluster.kubectl("apply", "--server-side", "-f", "-", input=_for_test_node(built))
    cluster.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment", "--timeout=180s", timeout=200)


def _for_test_node(manifests: str) -> str:
    import yaml

    documents: list[dict[str, Any]] = [document for document in yaml.safe_load_all(manifests) if document]
    for document in documents:
        if document["kind"] == "Namespace":
            # The admission policy's host paths are what the restricted profile forbids.
            document["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
        if document["kind"] == "Deployment":
            for container in document["spec"]["template"]["spec"]["containers"]:
                container["image"] = OPERATOR_IMAGE
                container["args"] = [*container["args"], f"--runtime-image={RUNTIME_IMAGE}"]
                container["imagePullPolicy"] = "Never"
    return yaml.safe_dump_all(documents, sort_keys=False)


def status_line(pool: Mapping[str, Any]) -> str:
    """A pool's state in one line."""
    status = pool.get("status") or {}
    ready = [c for c in status.get("conditions", ()) if c["type"] == "Ready"]
    message = ready[0]["message"] if ready else "not seen by the operator yet"
    return f"{status.get('ready', '0/?')} ready, {status.get('reason', 'Pending')}: {message}"
