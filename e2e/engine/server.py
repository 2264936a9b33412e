"""Starts and stops the real server, for tests and for `python -m engine serve`."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine import cache, environment
from engine.environment import SERVER_VARIABLES, EngineEnvironment

# Arguments that keep a server of a tiny model small and quick to start: 65,536 tokens of KV cache, no compiling.
LIGHT = (
    *("--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "8"),
    *("--kv-cache-memory-bytes", "64M", "--block-size", "32", "--reasoning-parser", "qwen3"),
)

_READY_DEADLINE_S = 240.0
_STOP_DEADLINE_S = 30.0
_POLL_S = 0.2


class ServerFailedError(RuntimeError):
    """The server ended by itself or was not ready in time; the text has the end of its log."""


@dataclass(frozen=True)
class Server:
    """A running server. `base_url` has no `/v1`."""

    base_url: str
    process: subprocess.Popen[bytes]
    log_path: Path

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def serve(
    model_dir: Path | str,
    args: Sequence[str] = LIGHT,
    env: Mapping[str, str] | None = None,
    *,
    port: int | None = None,
    engine: EngineEnvironment | None = None,
    deadline_s: float = _READY_DEADLINE_S,
) -> Iterator[Server]:
    """`vllm serve model_dir args...` on a free loopback port, ready to answer; stopped at the end.

    `args` replaces the default `LIGHT` whole. A host and a port in it are overridden.
    """
    engine = engine or environment.ensure()
    port = port or _free_port()
    command = [str(engine.vllm), "serve", str(model_dir), *args, "--host", "127.0.0.1", "--port", str(port)]
    variables = {**os.environ, **SERVER_VARIABLES, "VLLM_CACHE_ROOT": str(cache.root() / "vllm"), **(env or {})}
    variables["PATH"] = f"{engine.prefix / 'bin'}{os.pathsep}{variables.get('PATH', os.defpath)}"
    handle, name = tempfile.mkstemp(prefix="vllm-", suffix=".log")
    # The engine leaves its sockets behind.
    with tempfile.TemporaryDirectory(prefix="vllm-rpc-") as sockets:
        variables["VLLM_RPC_BASE_PATH"] = sockets
        with os.fdopen(handle, "wb") as log:
            # A session of its own: Ctrl-C reaches us only, and what is left of it can be stopped as one group.
            process = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        server = Server(base_url=f"http://127.0.0.1:{port}", process=process, log_path=Path(name))
        try:
            _wait_ready(server, port, deadline_s)
            yield server
        finally:
            _stop(process)


def _wait_ready(server: Server, port: int, deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while not _healthy(port):
        if (code := server.process.poll()) is not None:
            raise ServerFailedError(f"vLLM ended with {code} before it was ready:\n{server.log_tail()}")
        if time.monotonic() > deadline:
            raise ServerFailedError(f"vLLM was not ready after {deadline_s:.0f} s:\n{server.log_tail()}")
        time.sleep(_POLL_S)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=_STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing of its group is left


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
