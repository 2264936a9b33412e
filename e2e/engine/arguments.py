"""What vLLM's own parser makes of an argument list, and which flags and parsers its versions know."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine import environment
from engine.environment import SERVER_VARIABLES, EngineEnvironment
from engine.install import EngineUnavailableError

_HERE = Path(__file__).parent
_DATA = _HERE / "data"
_DEADLINE_S = 300.0


@dataclass(frozen=True)
class ParseResult:
    """Either the parsed values of all options, by destination (`max_num_seqs`), or the words of the refusal."""

    values: dict[str, Any] | None
    error: str | None

    @property
    def accepted(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Flag:
    """A long option of `vllm serve` in one of its spellings."""

    name: str  # this spelling, with its dashes
    canonical: str  # the option's first long spelling
    short: tuple[str, ...]  # its one-dash spellings
    value: bool  # does this spelling want a value?
    many: bool  # does it take several?
    optional: bool  # may the value be left out?
    choices: tuple[str, ...]  # the only values; empty: any
    suggestions: tuple[str, ...]  # values that its help lists, though it may take others


def parse(arg_lists: Sequence[Sequence[str]], *, engine: EngineEnvironment | None = None) -> list[ParseResult]:
    """What vLLM 0.32 makes of each list, taken as what follows `vllm serve`. One process for all (10 s).

    Beyond the parser itself, vLLM's own checks of the parsed values are run and its engine arguments made; nothing is
    loaded, and the model need not exist.
    """
    engine = engine or environment.ensure()
    with tempfile.TemporaryDirectory(prefix="vllm-parse-") as directory:
        output = Path(directory) / "results.json"
        done = subprocess.run(
            [str(engine.python), str(_HERE / "parse_arguments.py"), str(output)],
            input=json.dumps([list(arguments) for arguments in arg_lists]),
            # "Offline" would make it look for the model on this disk. Parsing asks no hub for anything.
            env={**os.environ, **SERVER_VARIABLES, **engine.variables, "HF_HUB_OFFLINE": "0"},
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
        if done.returncode != 0:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise EngineUnavailableError(
                f"vLLM's argument parser could not be run (exit code {done.returncode}):\n{tail}"
            )
        results = json.loads(output.read_text())
    return [ParseResult(values=result.get("values"), error=result.get("error")) for result in results]


@lru_cache
def known_flags_033() -> dict[str, Flag]:
    """Every long option of `vllm serve` 0.33.0, aliases and negative forms included, by its spelling with dashes."""
    options = json.loads((_DATA / "vllm_flags_0.33.json").read_text())["options"]
    return {
        spelling["name"]: Flag(
            name=spelling["name"],
            canonical=option["spellings"][0]["name"],
            short=tuple(option["short"]),
            value=spelling["value"],
            many=option["many"],
            optional=option["optional"],
            choices=tuple(option["choices"]),
            suggestions=tuple(option["suggestions"]),
        )
        for option in options
        for spelling in option["spellings"]
    }


@lru_cache
def parser_names(kind: str, version: str) -> frozenset[str]:
    """What `--reasoning-parser` (kind `reasoning`) or `--tool-call-parser` (`tool`) takes in `0.32` or `0.33`."""
    return frozenset(json.loads((_DATA / "vllm_parsers.json").read_text())[version][kind])
