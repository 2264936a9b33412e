"""Fake GPU nodes: kwok plays their kubelet, so pods on them become Ready without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cluster import builds, processes
from cluster.paths import write_atomically
from cluster.state import Component, State

MODULE = "sigs.k8s.io/kwok"
GPU_RESOURCE = "nvidia.com/gpu"
GPU_LABEL = "nvidia.com/gpu.product"
GPU_PRODUCT = "NVIDIA-H100-80GB-HBM3"
GPUS = 8
ANNOTATION = "kwok.x-k8s.io/node"
POD_ADDRESSES = "198.18.0.0/15"  # reserved for benchmarks: they lead nowhere
READY_AFTER = "fake-nodes.reasoningpool.test/ready-after"  # pod annotation, such as 6s
END_AFTER = "fake-nodes.reasoningpool.test/end-after"  # pod annotation, such as 6s
READY_SECONDS = 60.0
# What `kubectl kustomize kustomize/stage/fast` of the module puts together.
STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
)
KWOK = builds.Program(
    name="kwok",
    packages=((".", "kwok"),),
    files=tuple((MODULE, stage) for stage in STAGES),
    minutes="1 to 5 minutes",
)


def start(state: State) -> None:
    """Start kwok."""
    folder = builds.ensure(KWOK)
    stages = state.folder / "stages.yaml"
    write_atomically(stages, _stages(folder), mode=0o644)
    command = [
        str(folder / "kwok"),
        f"--kubeconfig={state.pki('kwok.kubeconfig')}",
        f"--config={stages}",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--cidr={POD_ADDRESSES}",
        "--node-lease-duration-seconds=40",
    ]
    processes.start(state, Component("kwok", command))


def node(name: str, *, product: str = GPU_PRODUCT, gpus: int = GPUS) -> dict[str, Any]:
    """A fake node with GPUs. It has no taint: without a real node beside it, pods need no toleration."""
    capacity = {"cpu": "1k", "memory": "64Ti", "ephemeral-storage": "64Ti", "pods": "1000", GPU_RESOURCE: str(gpus)}
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        GPU_LABEL: product,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {ANNOTATION: "fake"}},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def _stages(folder: Path) -> str:
    """Kwok's own stages, with the start and the end of a pod delayed by its annotations."""
    stages = [yaml.safe_load((folder / Path(name).name).read_text()) for name in STAGES]
    for stage in stages:
        if key := {"pod-ready": READY_AFTER, "pod-delete": END_AFTER}.get(stage["metadata"]["name"]):
            source = {"expressionFrom": f'.metadata.annotations["{key}"]'}
            stage["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": source}
    return yaml.safe_dump_all(stages, sort_keys=False)
