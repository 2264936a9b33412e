"""What a pod needs to run `vllm serve` in an image with nothing in it: folders of the host, links, variables.

For the local cluster only, where building an image of 3 GB for each test run would take minutes. `Content` is what
`cluster.import_scratch_image` and `cluster.mount_host_paths` take.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.environment import SERVER_VARIABLES, EngineEnvironment

NAME = "reasoningpool.local/vllm-cpu:0.32.0"
USER_ID = 1000

_PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
_MERGED = ("bin", "lib", "lib64", "sbin")


@dataclass(frozen=True)
class HostMount:
    """A folder of the host, read-only, and where it is in the container."""

    host_path: str
    mount_path: str


@dataclass(frozen=True)
class Content:
    """A scratch image and its host folders. Paths of files, links and folders have no leading slash."""

    name: str
    files: Mapping[str, bytes]
    symlinks: Mapping[str, str]
    env: Mapping[str, str]
    entrypoint: tuple[str, ...]
    mounts: tuple[HostMount, ...]


def pod_mounts(engine: EngineEnvironment) -> list[HostMount]:
    """The host's folders that vLLM needs, each at its own path, since scripts and links name them by it.

    They are the environment, the Python it was made from (often in a home directory that others cannot enter; a mount
    of the folder itself needs no way there), and `/usr` for the C library and `lscpu`.
    """
    return [HostMount(str(path.resolve()), str(path)) for path in engine.mounts]


def content(engine: EngineEnvironment, models: Mapping[str, Path] | None = None) -> Content:
    """The image in which `vllm serve MODEL ...` runs as any user id with a read-only root file system.

    Args:
        engine: what to run.
        models: directories to mount besides, by mount path, for pods that get their weights from no volume.
    """
    variables = dict(SERVER_VARIABLES)
    variables["PATH"] = os.pathsep.join((str(engine.vllm.parent), str(engine.prefix / "bin"), *_PROGRAMS))
    # For a user id without an entry in /etc/passwd; the operator's own values win.
    variables.update(HOME="/tmp", USER="engine")
    if engine.shared_library_dir and not engine.shared_library_dir.is_relative_to("/usr/lib"):
        # The image has no linker cache to find libpython by.
        variables["LD_LIBRARY_PATH"] = str(engine.shared_library_dir)
    weights = [HostMount(str(path.resolve()), at) for at, path in (models or {}).items()]
    return Content(
        name=NAME,
        files={
            "etc/passwd": f"root:x:0:0::/:/bin/false\nengine:x:{USER_ID}:{USER_ID}::/tmp:/bin/false\n".encode(),
            "etc/group": f"root:x:0:\nengine:x:{USER_ID}:\n".encode(),
            "etc/nsswitch.conf": b"hosts: files dns\n",
        },
        symlinks={name: str(Path("/", name).readlink()) for name in _MERGED if Path("/", name).is_symlink()},
        env=variables,
        entrypoint=("vllm", "serve"),
        mounts=(*pod_mounts(engine), *weights),
    )
