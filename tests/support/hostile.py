"""What a tenant's pod may say to the operator: pages over HTTP, last words, labels. Each is a kind of its own."""

from __future__ import annotations

import gzip
import threading
import zlib
from contextlib import suppress
from socket import create_server, socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

METRIC = "vllm:cache_config_info"
HEALTHY = f'{METRIC}{{block_size="16",engine="0",num_gpu_blocks="100000"}} 1.0\n'.encode()
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
_LABELS = METRIC + "{" + ",".join(f'l{number}="v"' for number in range(120_000)) + "} 1\n"
MIB = 1 << 20


def _whole(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers).encode()
    return _OK + lines + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def _chunked(*chunks: bytes) -> bytes:
    return _OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks)


# name: (what is sent at once, what is sent again and again after it)
PAGES: dict[str, tuple[bytes, bytes]] = {
    "many labels on one line": (_whole(_LABELS.encode()), b""),
    "many labels on every line": (_whole((_LABELS[:100_000] + "\n").encode() * 30), b""),
    "many series": (_whole(HEALTHY * 60_000), b""),
    "compressed page": (_whole(gzip.compress(_LABELS.encode() * 40), "Content-Encoding: gzip"), b""),
    "deflated page": (_whole(zlib.compress(b"x" * 200 * MIB), "Content-Encoding: deflate"), b""),
    "compression of an unknown kind": (_whole(b"\x00" * 1000, "Content-Encoding: zstd"), b""),
    "one line of megabytes": (_whole(f'{METRIC}{{a="'.encode() + b"9" * 3 * MIB), b""),
    "name without an end": (_whole(METRIC.encode() * 150_000), b""),
    "empty lines": (_whole(b"\n" * 3 * MIB), b""),
    "quotes and backslashes": (_whole(f'{METRIC}{{a="'.encode() + b'\\"' * 3_000 + b'"} 1\n'), b""),
    "no text": (_whole(bytes(range(256)) * 4_000), b""),
    "endless page": (_OK + b"\r\n", b"x" * 65_536),
    "endless page of the metric": (_OK + b"\r\n", HEALTHY * 100),
    "page that drips": (_OK + b"\r\n" + METRIC.encode(), b"{"),
    "page that drips in chunks": (_OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "chunks of one byte": (_chunked(*[b"x"] * 100_000), b""),
    "chunk without an end": (_OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n", b"y" * 4096),
    "chunk extension without an end": (_OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"e" * 4096),
    "headers without an end": (_OK, b"X-A: b\r\n"),
    "header without an end": (_OK + b"X-A: ", b"b" * 4096),
    "thousand cookies": (_whole(HEALTHY, *(f"Set-Cookie: c{n}=v" for n in range(90))), b""),
    "status line that is none": (b"GET / HTTP/1.1\r\n\r\n" * 100, b""),
    "answers without end": (b"HTTP/1.1 100 Continue\r\n\r\n" * 50, b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "redirect to itself": (b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n", b""),
    "redirect to the API server": (b"HTTP/1.1 307 x\r\nLocation: https://10.96.0.1/\r\nContent-Length: 0\r\n\r\n", b""),
    "error with a large body": (b"HTTP/1.1 500 x\r\nContent-Length: 9999999999\r\n\r\n", b"x" * 65_536),
    "two lengths": (_OK + b"Content-Length: 5\r\nContent-Length: 900\r\n\r\nabcde", b""),
    "body shorter than said": (_OK + b"Content-Length: 900000\r\n\r\n" + HEALTHY, b""),
    "silence": (b"", b""),
    "numbers beyond any device": (_whole(HEALTHY.replace(b"100000", b"9" * 4000)), b""),
}

_PHRASE = "kv cache dtype "
HUB = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
LAST_WORDS: dict[str, str] = {
    "one phrase again and again": _PHRASE * 60_000,
    "one phrase in lines": (_PHRASE + "\n") * 40_000,
    "errors without a colon": "Error " * 100_000,
    "carriage returns": "\r" * 500_000,
    "line separators": "\u2028x" * 200_000,
    "colours": "\x1b[" * 200_000,
    "brackets": "(" + "pid=1" * 100_000,
    "token of the hub": f"ValueError: Invalid user token: {HUB}",
    "password in a URL": f"OSError: https://me:{HUB}@hub.example/x: 404 Client Error",
    "looks like JSON": '{"type":"ERROR","object":{"kind":"Status","code":403}}' * 5_000,
}


class Engines:
    """Servers that say one thing to everybody, each at an address of its own, in threads."""

    PORT = 8000

    def __init__(self) -> None:
        self._open: list[socket] = []
        self._ended = threading.Event()

    def serve(self, address: str, first: bytes, again: bytes, port: int = PORT) -> int:
        server = create_server((address, port))
        self._open.append(server)
        threading.Thread(target=self._accept, args=(server, first, again), daemon=True).start()
        return int(server.getsockname()[1])

    def close(self) -> None:
        self._ended.set()
        for server in self._open:
            server.close()

    def _accept(self, server: socket, first: bytes, again: bytes) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=self._say, args=(connection, first, again), daemon=True).start()

    def _say(self, connection: socket, first: bytes, again: bytes) -> None:
        with suppress(OSError), connection:
            connection.settimeout(30)
            connection.recv(65_536)
            connection.sendall(first)
            pause = 0.001 if len(again) > 1 else 0.02
            while (again or not first) and not self._ended.wait(pause):
                connection.sendall(again)


def addresses() -> Iterator[str]:
    """Loopback addresses, which nothing outside this machine can reach."""
    for third in range(1, 250):
        for last in range(1, 250):
            yield f"127.77.{third}.{last}"


def ready(address: str) -> dict[str, Any]:
    """Status of a pod whose engine serves there."""
    running = {"name": "engine", "ready": True, "started": True, "restartCount": 0, "state": {"running": {}}}
    running |= {"image": "x", "imageID": "x"}
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")]
    ips = [{"ip": address}]
    return {
        "phase": "Running", "podIP": address, "podIPs": ips, "conditions": conditions, "containerStatuses": [running],
    }  # fmt: skip


def crashed(words: str) -> dict[str, Any]:
    """Status of a pod whose engine ended with these words."""
    ended = {"exitCode": 1, "reason": "Error", "message": words}
    status = {"name": "engine", "ready": False, "restartCount": 3, "image": "x", "imageID": "x"}
    status |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
    scheduled = {"type": "PodScheduled", "status": "True"}
    return {"phase": "Running", "conditions": [scheduled], "containerStatuses": [status]}
