"""The control group that holds the pods of a node; on version 1 one folder in each hierarchy."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from cluster.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
PARENT = "reasoningpool"
_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")
_EMPTY_SECONDS = 60.0


def name(identity: str) -> str:
    """The group of a cluster, as the kubelet takes it."""
    return f"/{PARENT}/{identity}"


def unified() -> bool:
    """Whether this machine has control groups of version 2 only."""
    return (ROOT / "cgroup.controllers").exists()


def create(identity: str) -> None:
    """Make the group in every hierarchy."""
    for hierarchy in _hierarchies():
        for folder in (hierarchy / PARENT, hierarchy / PARENT / identity):
            folder.mkdir(exist_ok=True)
            if unified():
                _delegate(folder.parent)
            elif (folder / "cpuset.cpus").exists():  # a new set is empty and takes no process
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (folder / file).write_text((folder.parent / file).read_text())


def remove(identity: str) -> None:
    """End what still runs in the group, and remove it; the common parent goes with the last cluster."""
    deadline = time.monotonic() + _EMPTY_SECONDS
    for hierarchy in _hierarchies():
        top = hierarchy / PARENT / identity
        while top.exists():
            folders = [Path(path) for path, _, _ in os.walk(top, topdown=False)]
            for folder in folders:
                _kill(folder)
            try:
                for folder in folders:
                    folder.rmdir()
            except OSError as error:  # a killed process needs a moment to leave
                if time.monotonic() > deadline:
                    raise ClusterError(f"the control group {top} cannot be removed: {error}") from error
                time.sleep(0.05)
        try:
            (hierarchy / PARENT).rmdir()
        except OSError:
            continue  # not there, or another cluster's


def _hierarchies() -> list[Path]:
    """The mount points of the hierarchies in use (links such as `cpu` -> `cpu,cpuacct` are the same one)."""
    if unified():
        return [ROOT]
    return [p for p in ROOT.iterdir() if p.is_dir() and not p.is_symlink() and (p / "cgroup.procs").exists()]


def _delegate(folder: Path) -> None:
    available = (folder / "cgroup.controllers").read_text().split()
    wanted = [controller for controller in _CONTROLLERS if controller in available]
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))


def _kill(folder: Path) -> None:
    try:
        pids = [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return
    for pid in pids:
        if pid:  # 0 stands for a process that this namespace does not see
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
