"""Where vLLM's CPU build is, installed first where it is not there yet.

The environment lies in the cache under a name that is a hash of all that decides its content. It is used only when its
marker is there, and the marker is written last.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from engine import cache, install
from engine.cache import Progress, print_progress
from engine.install import EngineUnavailableError

# For every server on a machine that it shares with others.
SERVER_VARIABLES = {
    # One process less: the worker runs in the engine core's process. 4 s and 400 MB less per server.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Left to itself each server pins itself to the first core: two servers would share it and leave the other one idle.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # No call to the outside.
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class EngineEnvironment:
    """An installed vLLM."""

    python: Path
    vllm: Path  # the command, by way of a launcher that fills an empty cache directory
    prefix: Path
    base_prefix: Path  # of the Python it was made from, which it goes on needing
    site_packages: Path
    key: str  # hash of its content
    shared_library_dir: Path | None  # where that Python's libpython is, when it has one

    @property
    def variables(self) -> dict[str, str]:
        """What `python` needs to import vLLM's kernels; the launcher sets it by itself."""
        return {"LD_LIBRARY_PATH": str(self.prefix / "launch" / "lib")}

    @property
    def mounts(self) -> tuple[Path, ...]:
        """Host directories without which it does not run. `engine.image.pod_mounts` says where a pod mounts them."""
        system = Path("/usr")
        own = [self.prefix]
        if not self.base_prefix.is_relative_to(system):
            own.append(self.base_prefix)
        separate = [
            path for name in ("/bin", "/lib", "/lib64") if (path := Path(name)).is_dir() and not path.is_symlink()
        ]
        return (*own, system, *separate)


def ensure(progress: Progress = print_progress) -> EngineEnvironment:
    """The engine's environment, installed first where it is not there yet (about a minute, 2.8 GB on disk)."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise EngineUnavailableError(
            f"vLLM's CPU build is locked for Linux on x86-64; this is {sys.platform} {platform.machine()}."
        )
    name = f"engine-{install.key()}"
    prefix = cache.root() / name
    if (found := _installed(prefix)) is not None:
        return found
    with cache.locked(cache.root() / f"{name}.lock", progress):
        if (found := _installed(prefix)) is not None:
            return found
        if prefix.exists():
            progress(f"removing an unfinished or broken install in {prefix}")
            shutil.rmtree(prefix)
        install.install(prefix, progress)
    found = _installed(prefix)
    if found is None:
        raise EngineUnavailableError(
            f"The environment in {prefix} was made but does not work; remove it and try again."
        )
    return found


def _installed(prefix: Path) -> EngineEnvironment | None:
    marker, python = prefix / install.MARKER, prefix / "bin" / "python"
    # The link to the base Python dangles once that one was removed or upgraded.
    if not marker.exists() or not python.exists():
        return None
    try:
        facts = json.loads(marker.read_text())
    except ValueError:  # half written: by another process right now, or by one that died; who holds the lock knows
        return None
    libraries = facts["shared_library_dir"]
    return EngineEnvironment(
        python=python,
        vllm=prefix / "launch" / "vllm",
        prefix=prefix,
        base_prefix=Path(facts["base_prefix"]),
        site_packages=Path(facts["site_packages"]),
        key=facts["key"],
        shared_library_dir=Path(libraries) if libraries else None,
    )
