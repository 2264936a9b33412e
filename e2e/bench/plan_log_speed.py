"""How long `reasoningpool plan` takes on a log of a million requests, and how much memory."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

REQUESTS: Final = int(os.environ.get("BENCH_REQUESTS", "1000000"))
POOL: Final = Path(__file__).parents[2] / "examples" / "qwen3-32b-two-tiers.yaml"
COMMAND: Final = (sys.executable, "-m", "reasoningpool.cli", "plan", str(POOL), "--rate", "20", "-o", "json")


def main() -> None:
    """Wall-clock time and peak memory of the command, both tiers planned, for each kind of file."""
    print(f"{REQUESTS:,} requests, two tiers\n")
    print("| log | size MiB | seconds | CPU seconds | peak MiB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: a child starts with the peak memory of its parent.
        writer = multiprocessing.get_context("spawn").Process(target=_write, args=(Path(folder),))
        writer.start()
        writer.join()
        for path in [Path(folder) / name for name in ("log.csv", "log.csv.gz", "log.jsonl")]:
            for extra in ((), ("--svg", f"{folder}/picture.svg")) if path.name == "log.csv" else ((),):
                seconds, busy, peak = _measured((*COMMAND, "--trace", str(path), *extra))
                name = f"{path.name[4:]}{' with --svg' if extra else ''}"
                print(
                    f"| {name} | {path.stat().st_size / 2**20:.0f} | {seconds:.1f} | {busy:.1f} | {peak:.0f} |",
                    flush=True,
                )
    print()


def _measured(command: tuple[str, ...]) -> tuple[float, float, float]:
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _write(folder: Path) -> None:
    """The same requests as CSV, as gzip, and as JSON lines with the usage object of an OpenAI-compatible answer."""
    rng = np.random.default_rng(1)
    columns = [
        np.cumsum(rng.exponential(0.05, REQUESTS)).round(3).tolist(),
        rng.lognormal(7, 0.8, REQUESTS).astype(int).clip(1, 30_000).tolist(),
        rng.lognormal(7, 1, REQUESTS).astype(int).clip(1, 60_000).tolist(),
        rng.lognormal(5.5, 0.6, REQUESTS).astype(int).clip(1, 20_000).tolist(),
    ]
    rows = list(zip(*columns, strict=True))
    text = "timestamp,prompt_tokens,thinking_tokens,answer_tokens\n" + "".join(
        f"{at},{prompt},{thinking},{answer}\n" for at, prompt, thinking, answer in rows
    )
    plain, packed, lines = folder / "log.csv", folder / "log.csv.gz", folder / "log.jsonl"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode(), compresslevel=1))
    with lines.open("w") as stream:
        for at, prompt, thinking, answer in rows:
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": thinking + answer,
                "completion_tokens_details": {"reasoning_tokens": thinking},
            }
            stream.write(json.dumps({"created": at, "model": "m", "usage": usage}) + "\n")
