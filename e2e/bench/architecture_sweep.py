"""vLLM's KV planner and model classes for every text-generation architecture: `python e2e/bench/architecture_sweep.py`.

`tests/data/architectures.json` holds a configuration of each architecture (the defaults of its configuration class, or
written from the keys its module reads, of 13 layers where the class allows) and what vLLM 0.32 made of it: bytes per
block, blocks, tokens for two lengths, parameters of the first rank. This command records the plans anew; the unit test
compares ours with them. About 5 s of CPU time each; name architectures to record only those.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.kv_planner import Case, Planned, plan

DATA: Final = Path(__file__).parents[2] / "tests" / "data" / "architectures.json"
BATCHED_TOKENS: Final = 2_048
LENGTHS: Final = (4_096, 65_536)
SHORT_LENGTHS: Final = (1_024, 2_048)  # learned positions
POOL_BYTES: Final = 61_234_567_890
_VARIANTS: Final = ((1, "auto"), (2, "fp8"), (8, "auto"))  # --all adds the others
_ALL: Final = tuple((ranks, dtype) for ranks in (1, 2, 8) for dtype in ("auto", "fp8"))
_TOGETHER: Final = 60  # cases in one process
_MOST_SHOWN: Final = 200


def lengths_of(config: dict[str, Any]) -> tuple[int, int]:
    """The two lengths an architecture is planned for."""
    return SHORT_LENGTHS if config["model_type"] in {"opt", "gpt2"} else LENGTHS


def label(ranks: int, dtype: str) -> str:
    """The name of a variant."""
    return f"tp{ranks} {'bf16' if dtype == 'auto' else dtype}"


def record(entries: dict[str, Any], names: Sequence[str], variants: Sequence[tuple[int, str]]) -> None:
    """Replace the plans of the named architectures."""
    todo = [(name, ranks, dtype) for name in names for ranks, dtype in variants]
    for start in range(0, len(todo), _TOGETHER):
        part = todo[start : start + _TOGETHER]
        for (name, ranks, dtype), made in zip(part, plan([_case(entries[n], r, d) for n, r, d in part]), strict=True):
            entries[name]["plans"][label(ranks, dtype)] = _plain(made)
        print(f"{min(start + _TOGETHER, len(todo))} of {len(todo)}", flush=True)


def _case(entry: dict[str, Any], ranks: int, dtype: str) -> Case:
    short, long = lengths_of(entry["config"])
    return Case(
        config=entry["config"], tensor_parallel=ranks, dtype=dtype, max_model_len=short, more_lengths=(long,),
        batched_tokens=BATCHED_TOKENS, pool_bytes=POOL_BYTES,
    )  # fmt: skip


def _plain(made: Planned | str) -> dict[str, Any] | str:
    if isinstance(made, str):
        return made.replace("\n", " ")[:_MOST_SHOWN]
    return {
        "bytes_per_block": made.bytes_per_block,
        "num_blocks": made.num_blocks,
        "tokens": [made.tokens, *made.more_tokens],
        "parameters": made.parameters[0],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architectures", nargs="*", help="default: all")
    parser.add_argument("--all", action="store_true", help="BF16 and FP8 at every number of ranks")
    options = parser.parse_args(argv)
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"  # the lengths do not depend on what a class states
    entries = json.loads(DATA.read_text(encoding="utf-8"))
    record(entries, options.architectures or list(entries), _ALL if options.all else _VARIANTS)
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(entries.items()))
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
