"""CPU seconds of the command line, from start to end: nearly all of `explain` is imports.

The commands take turns, so that a busy machine slows all of them; `import numpy` and the bare interpreter stand beside
them as a measure of the machine. Byte code is compiled before, as an installed package has it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "11"))
POOL: Final = str(Path(__file__).parents[2] / "examples" / "qwen3-32b-two-tiers.yaml")
COMMANDS: Final = {
    "python -c pass": ("-c", "pass"),
    "python -c 'import numpy'": ("-c", "import numpy"),
    "reasoningpool --help": ("-m", "reasoningpool.cli", "--help"),
    "reasoningpool explain FILE": ("-m", "reasoningpool.cli", "explain", POOL),
    "reasoningpool render FILE": ("-m", "reasoningpool.cli", "render", POOL),
    "reasoningpool run --help": ("-m", "reasoningpool.cli", "run", "--help"),
}


def main() -> None:
    """Median and least CPU seconds (user and system) of each command."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        rounds = [
            {name: _cpu_seconds(arguments, environment) for name, arguments in COMMANDS.items()}
            for _ in range(1 + ROUNDS)
        ][1:]  # the first one compiles
    print(f"{ROUNDS} rounds\n\n| command | CPU seconds, median | least |\n|---|---|---|")
    for name in COMMANDS:
        seconds = [found[name] for found in rounds]
        print(f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f} |")
    print()


def _cpu_seconds(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} exited with {process.returncode}")
    return usage.ru_utime + usage.ru_stime
