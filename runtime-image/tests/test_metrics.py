import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SOURCE = Path(__file__).parents[1] / "src"
PROCESS = """
import sys
from reasoningpool_runtime.metrics import metrics
made = metrics()
made.requests.labels("chat", "tier", "low", "completed").inc(int(sys.argv[1]))
made.in_flight.set(int(sys.argv[1]))
made.capacity.set(1000)
print("written", flush=True)
input()
"""


def test_several_processes_are_one_on_the_page(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, count],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for count in ("2", "3")
    ]
    try:
        assert [process.stdout.readline() for process in running if process.stdout] == ["written\n"] * 2
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(tmp_path))
        page = generate_latest(registry).decode()
    finally:
        for process in running:
            process.communicate("\n")
    assert 'outcome="completed",tier="tier"} 5.0' in page
    assert "reasoningpool_requests_in_flight 5.0" in page
    assert "reasoningpool_admission_capacity_tokens 1000.0" in page
