"""`python3 -m reasoningpool_runtime.drain`: what a pod's preStop hook runs. Standard library only.

Tells every process of the server to refuse new requests, then waits until none is in flight.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import urllib.request

from reasoningpool_runtime.lifecycle import request_drain, state_dir

_POLL_SECONDS = 0.5
# Two looks in a row, for a request that was accepted while the processes learnt of the drain.
_IDLE_LOOKS = 3
_IN_FLIGHT = re.compile(r"^reasoningpool_requests_in_flight(?:\{[^}]*\})? (\S+)", re.MULTILINE)


def in_flight(page: str) -> float | None:
    """Requests in flight by a metrics page, over all processes; None where the page does not tell."""
    found = _IN_FLIGHT.findall(page)
    return sum(map(float, found)) if found else None


def wait_until_idle(url: str, timeout_seconds: float) -> bool:
    """Whether the server became idle in time. A server that does not answer has nothing in flight."""
    deadline = time.monotonic() + timeout_seconds
    idle = 0
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - an address of this host
                count = in_flight(response.read().decode("utf-8", "replace"))
        except OSError as error:
            if isinstance(getattr(error, "reason", error), ConnectionRefusedError):
                return True
            count = None
        idle = idle + 1 if count == 0 else 0
        if idle >= _IDLE_LOOKS:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuse new requests and wait for those in flight.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--timeout-seconds", type=float, default=600)
    options = parser.parse_args()
    request_drain(state_dir())
    idle = wait_until_idle(f"http://127.0.0.1:{options.port}/metrics", options.timeout_seconds)
    print("idle" if idle else "time is over, requests are still in flight")
    return 0  # a failed hook would only be an event: the kubelet goes on all the same


if __name__ == "__main__":
    sys.exit(main())
