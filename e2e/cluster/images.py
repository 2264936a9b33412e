"""Container images without a registry: an archive written here, imported into the node's containerd."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cluster import builds, inside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.state import State

PAUSE = "reasoningpool.local/pause:1"
USR_LINKS = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
"""The links that a scratch image needs when the host's /usr is mounted into it."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class ScratchImage:
    """An image of one layer with a few files, links and empty folders. Paths have no leading slash."""

    name: str
    files: Mapping[str, Path | bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    user: str = ""
    workdir: str = "/"

    def archive(self) -> bytes:
        """The image as `docker save` would write it; the same image gives the same bytes."""
        layer = self._layer()
        digest = hashlib.sha256(layer).hexdigest()
        config = json.dumps(
            {
                "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": {
                    "Env": [f"{key}={value}" for key, value in sorted(self.environment.items())],
                    "Entrypoint": list(self.entrypoint) or None,
                    "User": self.user,
                    "WorkingDir": self.workdir,
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            },
            sort_keys=True,
        ).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        layer_name = f"{digest}.tar"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [self.name], "Layers": [layer_name]}]).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in ((config_name, config), (layer_name, layer), ("manifest.json", manifest)):
                _add(tar, name, content, mode=0o644)
        return buffer.getvalue()

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        parents = {str(p) for name in (*self.files, *self.links) for p in PurePosixPath(name).parents}
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for folder in sorted({*parents, *self.folders, "tmp"} - {"."}):
                entry = tarfile.TarInfo(folder)
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o1777 if folder == "tmp" else 0o755
                tar.addfile(entry)
            for name, source in sorted(self.files.items()):
                content, mode = (source, 0o644) if isinstance(source, bytes) else _read(source)
                _add(tar, name, content, mode)
            for name, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(name)
                entry.type = tarfile.SYMTYPE
                entry.linkname = target
                tar.addfile(entry)
        return buffer.getvalue()


def load(state: State, image: ScratchImage) -> None:
    """Import an image into the node; an image of the same name is replaced."""
    with tempfile.NamedTemporaryFile(dir=state.folder, suffix=".tar") as file:
        file.write(image.archive())
        file.flush()
        inside.run(state, "ctr", "--namespace=k8s.io", "images", "import", file.name)


def import_pause(state: State) -> None:
    """The image of the process that holds a pod's namespaces."""
    program = builds.ensure(builds.KUBERNETES) / "pause"
    load(state, ScratchImage(PAUSE, files={"pause": program}, entrypoint=("/pause",)))


def _read(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    tar.addfile(entry, io.BytesIO(content))
