"""The content of the scratch image is enough: a root with nothing else in it, read-only, user 1000, no compiler.

The kernel does here what a container runtime would: bind mounts in namespaces of their own.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine import image, server
from engine.client import stream_chat
from engine.environment import EngineEnvironment
from engine.image import Content
from engine.server import LIGHT, Server

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root on Linux"
    ),
]

# What the operator mounts and sets in the engine's container.
WRITABLE = ("tmp", "dev/shm", "home/engine", "cache")
VARIABLES = {
    "HOME": "/home/engine",
    "VLLM_CACHE_ROOT": "/cache/vllm",
    "HF_HOME": "/cache/huggingface",
    "TMPDIR": "/tmp",
}
COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "clang++")
# Not part of a fresh Debian.
ABSENT = (*(f"/usr/bin/{name}" for name in COMPILERS), "/usr/lib/x86_64-linux-gnu/libnuma.so.1")


def script(content: Content, root: Path, command: list[str]) -> str:
    """Shell text that builds the root and runs the command in it. To be run in new mount and process namespaces."""

    def inside(path: str) -> str:
        return shlex.quote(f"{root}/{path.lstrip('/')}")

    lines = ["set -eu", f"mount -t tmpfs -o mode=755 none {root}", f"mkdir -p {inside('etc')}"]
    for name, text in content.files.items():
        lines.append(f"printf %s {shlex.quote(text.decode())} > {inside(name)}")
    lines += [f"ln -s {target} {inside(name)}" for name, target in content.symlinks.items()]
    for mount in content.mounts:
        at = inside(mount.mount_path)
        lines += [
            f"mkdir -p {at}",
            f"mount --bind {shlex.quote(mount.host_path)} {at}",
            f"mount -o remount,bind,ro {at}",
        ]
    for name in ABSENT:
        path = inside(name)
        lines.append(f"if [ -e {path} ]; then mount --bind /dev/null $(readlink -f {path}); fi")
    lines += [f"mkdir -p {inside(name)}" for name in ("dev", "proc", "sys", *WRITABLE)]
    lines += [f"mount -t proc none {inside('proc')}", f"mount --rbind /sys {inside('sys')}"]
    lines.append(f"mount --rbind /dev {inside('dev')}")
    lines += [f"mount -t tmpfs -o mode=1777 none {inside(name)}" for name in WRITABLE]
    lines.append(f"mount -o remount,ro {root}")
    variables = [f"{name}={value}" for name, value in {**content.env, **VARIABLES}.items()]
    user = ["setpriv", f"--reuid={image.USER_ID}", f"--regid={image.USER_ID}", "--clear-groups", "--no-new-privs"]
    lines.append(f"exec {shlex.join(['chroot', str(root), *user, '/usr/bin/env', '-i', *variables, *command])}")
    return "\n".join(lines)


def namespaced(text: str) -> list[str]:
    return ["unshare", "--mount", "--pid", "--fork", "sh", "-c", text]


@pytest.fixture(scope="module")
def content(engine_environment: EngineEnvironment, tiny_model: Path) -> Content:
    return image.content(engine_environment, {"/models": tiny_model})


@pytest.fixture(scope="module")
def restricted(content: Content, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("restricted"), server._free_port()
    (folder / "root").mkdir()
    command = [*content.entrypoint, "/models", *LIGHT, "--served-model-name=tiny", f"--port={port}"]
    log_path = folder / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            namespaced(script(content, folder / "root", command)), stdout=log, stderr=log, start_new_session=True
        )
    running = Server(f"http://127.0.0.1:{port}", process, log_path)
    try:
        server._wait_ready(running, port, 240)
        yield running
    finally:
        # The first process of the pid namespace; its end is the end of all in there. That `unshare` passes its own
        # end on is undone by the change of user.
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
        process.wait()


def test_the_root_is_as_strict_as_it_claims(content: Content, tmp_path: Path) -> None:
    probe = (
        "id -u; for path in / /usr /models; do touch $path/x 2>/dev/null && echo wrote to $path; done;"
        f" for name in {' '.join(COMPILERS)}; do test -x /usr/bin/$name && echo found $name; done;"
        " touch /tmp/x && echo done"
    )
    done = subprocess.run(
        namespaced(script(content, tmp_path, ["/bin/sh", "-c", probe])), capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(image.USER_ID), "done"], done.stderr


def test_the_server_starts_and_answers_there(restricted: Server) -> None:
    reply = stream_chat(restricted.base_url, "tiny", "What is the capital of Italy?", temperature=0)
    assert reply.thinking
    assert "Rome" in reply.answer
