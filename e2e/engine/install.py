"""The recipe that makes the engine's environment; `engine.environment` runs it, under a lock, where it is missing.

This file's text is part of the environment's name, so a change of it makes a new environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from engine import cache, stubs
from engine.cache import Progress

VLLM_VERSION = "0.32.0"
MARKER = "reasoningpool-engine.json"

_HERE = Path(__file__).parent
_SYNC_DEADLINE_S = 1500.0
_CHECK_DEADLINE_S = 300.0

# Without these the installer would look at another project or put the environment elsewhere.
_CALLERS_OWN = ("VIRTUAL_ENV", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PYTHONPATH", "PYTHONHOME")

_FACTS = """
import json, sys, sysconfig
print(json.dumps({
    "base_prefix": sys.base_prefix,
    "site_packages": sysconfig.get_paths()["purelib"],
    "shared_library_dir": sysconfig.get_config_var("LIBDIR") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None,
}))
"""

# What vLLM finds out about a model's class by importing it in a process of its own, once for each cache directory. A
# trial of the whole as well.
_TRIAL = """
import importlib.metadata
import torch
from vllm.model_executor.models.registry import ModelRegistry
from vllm.platforms import current_platform
current_platform.import_kernels()
torch.ops._C.cpu_attention_with_kv_cache  # vLLM itself only warns when its kernels do not load
ModelRegistry.models["Qwen3ForCausalLM"].inspect_model_cls()
print(current_platform.device_type, importlib.metadata.version("vllm"))
"""

# A pod starts with an empty cache directory. What is missing there is copied before vLLM looks (8 s less); without it,
# or where it cannot be written, vLLM works all the same. The library is `stubs`' word that there is no NUMA.
_LAUNCHER = """\
#!/bin/sh
cache="${VLLM_CACHE_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/vllm}"
mkdir -p "$cache" && cp -Rn "PREFIX/launch/cache/." "$cache"
export LD_LIBRARY_PATH="PREFIX/launch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "PREFIX/bin/vllm" "$@"
"""


class EngineUnavailableError(RuntimeError):
    """vLLM cannot be had here; the text says why and what to do."""


def key() -> str:
    """The hash of everything that decides what is installed."""
    recipe = [Path(__file__), _HERE / "stubs.py", _HERE / "pyproject.toml", _HERE / "uv.lock"]
    return cache.content_hash(*(path.read_bytes() for path in recipe))


def install(prefix: Path, progress: Progress) -> None:
    """Make the environment in `prefix`, which is not there yet; the marker is written last."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise EngineUnavailableError("uv is not on the PATH. Install it with: pip install uv")
    progress(f"installing vLLM {VLLM_VERSION} (CPU build) in {prefix}")
    progress("about 0.9 GB to download where the package cache is empty, 2.8 GB on disk")
    environment = _clean_environment()
    environment["UV_PROJECT_ENVIRONMENT"] = str(prefix)
    # Compiled now, because pods see it read-only and would compile all of it again at each start (25 s).
    command = [uv, "sync", "--frozen", "--no-default-groups", "--compile-bytecode", "--project", str(_HERE)]
    _sync(command, environment, progress)
    facts = json.loads(_run([str(prefix / "bin" / "python"), "-c", _FACTS]))
    site_packages = Path(facts["site_packages"])
    stubs.write_no_cuda(site_packages)
    stubs.write_no_numa(site_packages, prefix / "launch" / "lib")
    _name_distribution(site_packages)
    progress("trying it")
    launch = prefix / "launch"
    variables = {"VLLM_CACHE_ROOT": str(launch / "cache"), "LD_LIBRARY_PATH": str(launch / "lib")}
    words = _run([str(prefix / "bin" / "python"), "-c", _TRIAL], variables).split()
    if words[-2:] != ["cpu", f"{VLLM_VERSION}+cpu"]:
        raise EngineUnavailableError(
            f"The installed vLLM calls itself {' '.join(words)!r}, not 'cpu {VLLM_VERSION}+cpu'."
        )
    (launch / "vllm").write_text(_LAUNCHER.replace("PREFIX", str(prefix)))
    (launch / "vllm").chmod(0o755)
    cache.make_world_readable(prefix)
    (prefix / MARKER).write_text(json.dumps({**facts, "key": key()}))
    progress("installed")


def _sync(command: list[str], environment: dict[str, str], progress: Progress) -> None:
    with subprocess.Popen(
        command,
        cwd=_HERE,
        env=environment,
        umask=0o022,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        timer = threading.Timer(_SYNC_DEADLINE_S, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                if not line.startswith(" + "):  # one for each of 150 packages
                    progress(line.rstrip())
        finally:
            timer.cancel()
    if process.returncode < 0:
        raise EngineUnavailableError(f"Installing vLLM was stopped (it may take {_SYNC_DEADLINE_S:.0f} s). Try again.")
    if process.returncode > 0:
        raise EngineUnavailableError(f"Installing vLLM failed (exit code {process.returncode}); uv said why above.")


def _name_distribution(site_packages: Path) -> None:
    """VLLM looks itself up under the name `vllm`, and takes the CPU for its device only if the version says `cpu`."""
    directory = site_packages / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n")
    (directory / "INSTALLER").write_text("reasoningpool\n")
    (directory / "RECORD").write_text("")


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _CALLERS_OWN}


def _run(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    environment = {**_clean_environment(), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **(variables or {})}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_CHECK_DEADLINE_S,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-15:])
        raise EngineUnavailableError(f"{command[0]} ended with {done.returncode}:\n{tail}")
    return done.stdout
