"""`python -m demo up|down`."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from cluster import core, kubectl, node
from cluster.errors import ClusterError, UnsupportedError
from cluster.progress import QUIET_SECONDS
from cluster.state import Profile
from demo import stack
from demo.forward import forwarded
from engine.client import stream_chat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.core import Cluster

NAME: Final = "demo"
NAMESPACE: Final = "default"
EXAMPLE: Final = stack.ROOT / "examples" / "reasoningpool.yaml"
READY_SECONDS: Final = 600.0
QUESTIONS: Final = {"reasoning": "What is two plus three?", "chat": "What is the capital of France?"}
_STARTED: Final = time.monotonic()


def say(text: str) -> None:
    """A line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - _STARTED:5.0f} s] {text}", flush=True)


@contextmanager
def awaiting(what: str | Callable[[], str], every: float = QUIET_SECONDS) -> Iterator[None]:
    """Say from time to time what the body waits for; on a loaded machine it may be silent for minutes."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every):
            say(f"still waiting for {what if isinstance(what, str) else what()}")

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def up() -> int:
    """Everything, from nothing to two answers."""
    try:
        node.require()
    except UnsupportedError as reason:
        say(f"{reason}; showing the control plane with fake nodes instead: pods are not really run")
        return _fake()
    say("local Kubernetes with a real node (the first time this builds it, which takes minutes)")
    with awaiting("the cluster"):
        cluster = core.up(NAME, Profile.NODE)
    say("vLLM (CPU build) and a tiny model")
    stack.provide_engine(cluster, say)
    stack.provide_model(cluster, NAMESPACE, say)
    say("the operator and the request runtime: CRD, RBAC, Deployment")
    stack.provide_runtime(cluster)
    stack.provide_operator(cluster)
    with awaiting("the operator's Deployment to be ready"):
        stack.install_operator(cluster)
    say(f"kubectl apply -f examples/{EXAMPLE.name}")
    cluster.kubectl("-n", NAMESPACE, "apply", "-f", str(EXAMPLE))
    if not _wait_ready(cluster):
        return 1
    pool = yaml.safe_load(EXAMPLE.read_text())
    for tier in pool["spec"]["tiers"]:
        _ask(cluster, pool["metadata"]["name"], tier["name"], pool["spec"]["model"]["servedName"])
    print()
    print(cluster.kubectl("-n", NAMESPACE, "get", "reasoningpools", "-o", "wide").stdout)
    _look_around(cluster)
    return 0


def _fake() -> int:
    cluster = core.up(NAME, Profile.FAKE_NODES, fake_nodes=2)
    stack.install_crd(cluster)
    cluster.kubectl("-n", NAMESPACE, "apply", "-f", str(stack.ROOT / "examples" / "qwen3-32b-two-tiers.yaml"))
    say("the operator is not running yet; start it with:")
    _look_around(cluster)
    print("  uv run reasoningpool run --no-leader-election --log-format text")
    return 0


def _wait_ready(cluster: Cluster) -> bool:
    deadline, shown = time.monotonic() + READY_SECONDS, "no answer yet"
    name = yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"]
    with awaiting(lambda: f"every replica of {name} to be ready ({shown})"):
        while time.monotonic() < deadline:
            pool = cluster.get("-n", NAMESPACE, "reasoningpool", name)
            line = stack.status_line(pool)
            if line != shown:
                say(line)
                shown = line
            if pool.get("status", {}).get("reason") == "Ready":
                return True
            time.sleep(1)
    say(f"not ready after {READY_SECONDS:.0f} s; kubectl describe rp {name} tells more")
    print(cluster.kubectl("-n", NAMESPACE, "describe", "reasoningpool", name).stdout)
    return False


def _ask(cluster: Cluster, pool: str, tier: str, model: str) -> None:
    question, colour = QUESTIONS[tier], sys.stdout.isatty()
    print(f"\n--- {pool}-{tier}: {question}")
    last = ""

    def show(kind: str, text: str) -> None:
        nonlocal last
        label = {"reasoning": "thinking", "content": "answer"}[kind]
        if label != last:
            if not text.strip():
                return  # the line break that the template puts between the two
            print(("\n" if last else "") + f"{label}: ", end="")
            last, text = label, text.lstrip()
        dim = colour and kind == "reasoning"
        print(f"\x1b[2m{text}\x1b[0m" if dim else text, end="", flush=True)

    with forwarded(cluster, NAMESPACE, f"{pool}-{tier}") as url:
        reply = stream_chat(url, model, question, on_delta=show, temperature=0, max_tokens=200)
    print(f"\n({reply.completion_tokens} tokens, {reply.finish_reason})")
    effort, budget = (reply.headers.get(f"x-reasoningpool-{name}") for name in ("effort", "thinking-budget"))
    most = reply.headers.get("x-reasoningpool-max-tokens")
    first = "none" if reply.first_answer_s is None else f"after {reply.first_answer_s:.1f} s"
    print(f"effort {effort}: at most {budget} tokens of thinking, {most} in all; first token of the answer: {first}")


def _look_around(cluster: Cluster) -> None:
    print("Look around:")
    print(f"  export KUBECONFIG={cluster.kubeconfig}")
    print(f"  export PATH={Path(kubectl.binary()).parent}:$PATH")
    print("  kubectl get rp,statefulsets,pods,services")
    print("  kubectl describe rp")
    print("  kubectl explain reasoningpool.spec.tiers")
    print("Stop and remove everything: make demo-down")


def main() -> int:
    """The command."""
    match sys.argv[1:]:
        case ["up"]:
            try:
                return up()
            except ClusterError as error:
                print(f"demo: {error}", file=sys.stderr)
                return 1
        case ["down"]:
            core.Cluster(NAME).down()
            return 0
        case _:
            print("usage: python -m demo up|down", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
