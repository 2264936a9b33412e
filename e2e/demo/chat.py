"""A streamed chat request to a tier, through `kubectl port-forward` as a user would do it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster import kubectl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.core import Cluster

FORWARD_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 120.0


@dataclass
class Reply:
    """What came back, thinking and answer apart."""

    thinking: str = ""
    answer: str = ""
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def forwarded(cluster: Cluster, namespace: str, service: str, port: int = 8000) -> Iterator[int]:
    """A loopback port that leads to a Service."""
    command = [
        kubectl.binary(), "--kubeconfig", str(cluster.kubeconfig), "-n", namespace,
        "port-forward", "--address", "127.0.0.1", f"service/{service}", f":{port}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found is None:
                msg = f"port-forward to {service} failed: {line.strip()}"
                raise ConnectionError(msg)
            yield int(found[1])
        finally:
            process.terminate()


def chat(
    port: int, model: str, question: str, on_text: Callable[[str, str], None] = lambda _kind, _text: None, **body: Any
) -> Reply:
    """Ask and read the stream to its end; `on_text` gets ("thinking" | "answer", text) as it comes."""
    request = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
    } | body
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(request), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            msg = f"HTTP {response.status}: {response.read(2000).decode(errors='replace')}"
            raise ConnectionError(msg)
        return _read(response, on_text)


def _read(response: http.client.HTTPResponse, on_text: Callable[[str, str], None]) -> Reply:
    reply, deadline = Reply(), time.monotonic() + ANSWER_SECONDS
    for raw in response:
        if time.monotonic() > deadline:
            msg = f"no end of the answer within {ANSWER_SECONDS:.0f} s"
            raise TimeoutError(msg)
        line = raw.decode().strip()
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = json.loads(line.removeprefix("data: "))
        reply.usage = chunk.get("usage") or reply.usage
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            if delta.get("reasoning"):
                reply.thinking += delta["reasoning"]
                on_text("thinking", delta["reasoning"])
            if delta.get("content"):
                reply.answer += delta["content"]
                on_text("answer", delta["content"])
            reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
    return reply
