"""The flags of `vllm serve` and how vLLM's parser recognises them.

vLLM accepts more spellings than its help shows: underscores for dashes, any unambiguous beginning of a
flag, `--no-` before a switch, keys of a JSON value after a dot. This module maps a spelling to its flag.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Final

_TABLE: Final = "vllm_flags.json"


class Takes(StrEnum):
    """How many values follow a flag."""

    NONE = "none"
    OPTIONAL = "optional"
    ONE = "one"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of the engine under its first name."""

    name: str
    takes: Takes
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Match:
    """What a spelling stands for: exactly one flag, several (ambiguous), or none that is known.

    `key` is the part after a dot, `attached` a value written right behind a flag of one letter (`-qfp8`).
    """

    flags: tuple[Flag, ...]
    key: str | None = None
    attached: str | None = None


@functools.cache
def spellings() -> Mapping[str, Flag]:
    """Every way to write each flag in full."""
    table: dict[str, Flag] = {}
    raw = json.loads(resources.files(__package__).joinpath(_TABLE).read_text(encoding="utf-8"))
    for entry in raw["flags"]:
        flag = Flag(entry["name"], Takes(entry["takes"]), bool(entry.get("repeatable")))
        written = [flag.name, *entry.get("aliases", ())]
        if "negation" in entry:
            # The second form is what versions before 0.33 call it.
            written += [entry["negation"], f"--no-{flag.name[2:]}"]
        table.update(dict.fromkeys(written, flag))
    return table


def look_up(spelling: str) -> Match:
    """The flag that vLLM's parser takes a spelling for (the part of an argument before any `=`).

    >>> look_up("--max_num-seq").flags[0].name
    '--max-num-seqs'
    >>> [flag.name for flag in look_up("--kv-offloading-").flags]
    ['--kv-offloading-backend', '--kv-offloading-size']
    """
    written, dot, key = spelling.partition(".")
    if written.startswith("--"):
        written = "--" + written[2:].replace("_", "-")
    elif written.startswith("-O"):
        return Match((spellings()["--optimization-level"],), attached=written[2:] or None)
    table = spellings()
    rest = key if dot else None
    if written in table:
        return Match((table[written],), rest)
    candidates = {flag.name: flag for name, flag in table.items() if name.startswith(written)}
    short = None if written.startswith("--") else table.get(written[:2])
    if short is not None and not candidates:
        return Match((short,), rest, attached=written[2:])
    return Match(tuple(candidates[name] for name in sorted(candidates)), rest)
