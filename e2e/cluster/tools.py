"""containerd, runc, CNI plugins, iptables and ip from Debian's packages, unpacked into the cache, never installed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.errors import ClusterError, UnsupportedError
from cluster.paths import cache_root, locked, write_atomically
from cluster.progress import Progress

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "iptables", "iproute2")
_OF_THE_HOST = ("libc6", "libgcc-s1", "libcrypt1", "libc-bin")  # never beside the host's own dynamic linker
_IPTABLES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
_DEPENDS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


@dataclass(frozen=True, slots=True)
class Tools:
    """A folder with unpacked packages."""

    root: Path

    @property
    def cni(self) -> Path:
        """The folder of the CNI plugins."""
        return self.root / "usr/lib/cni"

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to run the tools and their libraries."""
        folders = ["bin-links", "usr/sbin", "usr/bin", "sbin", "bin"]
        path = [*(str(self.root / folder) for folder in folders), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        libraries = sorted({str(p.parent) for p in self.root.glob("**/lib/*-linux-gnu/*.so*")})
        plugins = next((str(p) for p in self.root.glob("usr/lib/*/xtables")), "")
        return {"PATH": ":".join(path), "LD_LIBRARY_PATH": ":".join(libraries), "XTABLES_LIBDIR": plugins}

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of the tools on the host and give what it prints."""
        result = subprocess.run(
            command, env=os.environ | self.environment(), capture_output=True, text=True, check=False
        )
        if check and result.returncode:
            raise ClusterError(f"{' '.join(command)} failed ({result.returncode}): {result.stderr.strip()}")
        return result


def ensure() -> Tools:
    """The unpacked tools; fetched the first time, then taken from the cache without asking the network."""
    pointer = cache_root() / "tools" / f"{_release()}.json"
    with locked("tools"):
        if pointer.exists() and (root := pointer.parent / json.loads(pointer.read_text())["folder"]).exists():
            return Tools(root)
        with Progress("fetching containerd, runc, CNI plugins and iptables (once)") as progress:
            folder = _fetch(pointer.parent, progress)
        write_atomically(pointer, json.dumps({"folder": folder.name}), mode=0o644)
    return Tools(folder)


@cache
def _release() -> str:
    """`debian-12-amd64`: packages of one release do not fit another."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise UnsupportedError(
            "the node profile takes containerd and runc from Debian's packages, and this machine has no apt-get"
        )
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    return "-".join([release.get("ID", "linux"), release.get("VERSION_ID", "rolling"), architecture.strip()]).replace(
        '"', ""
    )


def _fetch(parent: Path, progress: Progress) -> Path:
    """Download the packages with the libraries they need, with package lists of our own, and unpack them."""
    parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=parent, prefix=".fetch."))
    work.chmod(0o755)
    try:
        progress.update("package lists", last=True)
        _apt(work, "apt-get", "update")
        names = _closure(work)
        progress.update(f"{len(names)} packages", last=True)
        _apt(work, "apt-get", "download", *names)
        archives = sorted(work.glob("*.deb"))
        digest = hashlib.sha256("\n".join(path.name for path in archives).encode()).hexdigest()[:20]
        target = parent / f"{_release()}-{digest}"
        if not target.exists():
            _unpack(archives, work / "root")
            (work / "root").rename(target)
        return target
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _closure(work: Path) -> list[str]:
    """The packages and every library that they depend on, less those that belong to the host's C library."""
    flags = [f"--no-{kind}" for kind in _DEPENDS]
    lines = _apt(work, "apt-cache", "depends", "--recurse", *flags, *PACKAGES).splitlines()
    names = {line for line in lines if line[:1].isalnum() and ":" not in line}
    libraries = {n for n in names if n.startswith(("lib", "zlib")) and n not in _OF_THE_HOST and not n.endswith("-bin")}
    return sorted({*PACKAGES, *libraries})


def _unpack(archives: list[Path], root: Path) -> None:
    for archive in archives:
        subprocess.run(["dpkg", "-x", str(archive), str(root)], check=True)
    links = root / "bin-links"
    links.mkdir()
    for name in _IPTABLES:  # in an installation, Debian's alternatives make these names
        (links / name).symlink_to("../usr/sbin/xtables-nft-multi")
    root.chmod(0o755)


def _apt(work: Path, command: str, *arguments: str) -> str:
    state, cache = work / "state", work / "cache"
    for folder in (state / "lists/partial", cache / "archives/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State": state,
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": cache,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    flags = [f"-o{key}={value}" for key, value in options.items()]
    result = subprocess.run([command, *flags, "-q", *arguments], cwd=work, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ClusterError(f"{command} {' '.join(arguments)} failed:\n{result.stderr[-2000:]}")
    return result.stdout
