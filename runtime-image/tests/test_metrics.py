import os
import subprocess
import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

DEADLINE_S = 60.0
SOURCE = Path(__file__).parents[1] / "src"
PROCESS = """
import sys
from reasoningpool_runtime.metrics import metrics
made = metrics()
made.in_flight.set(int(sys.argv[1]))
made.capacity.set(1000)
made.requests.labels("chat", "tier", "low", "completed").inc(int(sys.argv[1]))
input()
"""


def read(directory: Path) -> str:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(directory))
    return generate_latest(registry).decode()


def test_several_processes_are_one_on_the_page(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", PROCESS]
    running = [
        subprocess.Popen([*command, str(count)], env=environment, stdin=subprocess.PIPE, text=True) for count in (2, 3)
    ]
    try:
        deadline = time.monotonic() + DEADLINE_S
        while 'outcome="completed",tier="tier"} 5.0' not in (page := read(tmp_path)):
            assert time.monotonic() < deadline, page
    finally:
        for process in running:
            process.communicate("\n")
    assert "reasoningpool_requests_in_flight 5.0" in page
    assert "reasoningpool_admission_capacity_tokens 1000.0" in page
