"""What vLLM's own KV cache planner makes of a model, for comparison with ours."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine import environment
from engine.environment import SERVER_VARIABLES, EngineEnvironment
from engine.install import EngineUnavailableError

_HERE = Path(__file__).parent
_DEADLINE_S = 1200.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and how it is run. Names and values are vLLM's; sizes in bytes and tokens."""

    config: dict[str, Any]  # config.json, with `architectures`
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1  # decode context parallelism
    dtype: str = "auto"
    max_model_len: int = 32_768
    more_lengths: tuple[int, ...] = ()  # further values of `max_model_len`, for their tokens alone
    batched_tokens: int = 8_192
    max_num_seqs: int = 256
    prefix_caching: bool = True
    hybrid_manager: bool = True
    block_size: int = 16  # as the backend prefers it, or the user states it
    kernel_block: int = 16  # of the backend: blocks are multiples of it
    ssm_dtype: str | None = None  # of the recurrent state
    speculative: dict[str, Any] | None = None  # as `--speculative-config`, with the draft's configuration as `config`
    pool_bytes: int = 61_234_567_890


@dataclass(frozen=True)
class PlannedGroup:
    """A KV cache group: vLLM's kind of specification, layers, tokens per block, blocks that one request reserves."""

    kind: str
    layers: int
    block_size: int
    blocks: int


@dataclass(frozen=True)
class Planned:
    """The planner's answer. `parameters` are the elements that the first rank of each pipeline stage holds."""

    groups: tuple[PlannedGroup, ...]
    num_blocks: int
    bytes_per_block: int  # of the stage where it is largest
    tokens: int
    concurrency: float
    parameters: tuple[int, ...] = field(default=())
    more_tokens: tuple[int, ...] = field(default=())  # at the case's `more_lengths`


def plan(cases: Sequence[Case], *, engine: EngineEnvironment | None = None) -> list[Planned | str]:
    """The plans of vLLM 0.32, or the words in which it refuses, one process for all (8 s, and 1 to 5 s each)."""
    engine = engine or environment.ensure()
    with tempfile.TemporaryDirectory(prefix="vllm-plan-") as directory:
        output = Path(directory) / "results.json"
        done = subprocess.run(
            [str(engine.python), str(_HERE / "plan_kv_cache.py"), str(output)],
            input=json.dumps([asdict(case) for case in cases]),
            env={**os.environ, **SERVER_VARIABLES, **engine.variables, "TMPDIR": directory},
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
        if done.returncode != 0:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise EngineUnavailableError(f"vLLM's planner could not be run (exit code {done.returncode}):\n{tail}")
        results = json.loads(output.read_text())
    return [_read(result) for result in results]


def _read(result: dict[str, Any]) -> Planned | str:
    if "plan" not in result:
        return str(result["error"])
    found = result["plan"]
    return Planned(
        groups=tuple(PlannedGroup(**group) for group in found["groups"]),
        num_blocks=found["num_blocks"],
        bytes_per_block=found["bytes_per_block"],
        tokens=found["tokens"],
        concurrency=found["concurrency"],
        parameters=tuple(found["parameters"]),
        more_tokens=tuple(found["more_tokens"]),
    )
