"""Checking `engine.extraArgs`: no argument twice, in whatever spelling, and none behind the sizing's back.

The list is read as vLLM's parser would read it (see `flag_table`). A flag the table does not know is let
through, with a warning and with the value that follows it: it may be of another version or of a plugin, and
if it is wrong the engine says so. What only looks like a known flag (`-tp2`, `--SEED`) is refused.
Kubernetes expands `$(VAR)` before the engine sees it, so a variable may stand only where no flag can hide
in it: after a `=`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from reasoningpool.api.findings import Finding, error, warning
from reasoningpool.objects import shorten
from reasoningpool.sizing.types import EngineVersion
from reasoningpool.vllm.argument_policy import OWNED, REFUSED, REFUSED_BESIDE
from reasoningpool.vllm.flag_table import Flag, Match, Takes, look_up, spellings
from reasoningpool.vllm.permitted_arguments import ONLY_KEYS, OWNED_KEYS, REFUSED_VALUES, WARNED, WARNED_BESIDE

_WIDTH: Final = 60
_NEAR: Final = 0.8
_NUMBER: Final = re.compile(r"-\d+$|-\d*\.\d+$")
_VARIABLE: Final = re.compile(r"(?<!\$)(?:\$\$)*\$\(")
_ENABLE_REASONING: Final = "--enable-reasoning"
_LOG_STATS: Final = "--disable-log-stats"


def check_extra_arguments(
    args: Sequence[str], version: EngineVersion | None, *, path: str = "engine.extraArgs", scaling: bool = False
) -> tuple[Finding, ...]:
    """What has to be refused in a list of further `vllm serve` arguments; if nothing has, what is doubtful.

    A doubt that several arguments share is said for the first of them.

    Args:
        args: The list as written, one token per entry.
        version: The engine's version, None where it is not known.
        path: Where the list stands; a finding's path is that of the entry.
        scaling: Whether the tier is scaled by the engine's metrics.
    """
    reader = _Reader(tuple(args), version, scaling)
    refused = tuple(error(f"{path}[{index}]", message) for index, message in reader.problems())
    return refused or tuple(warning(f"{path}[{index}]", message) for index, message in reader.doubts.values())


@dataclass(slots=True)
class _Reader:
    """Reads the list once from left to right."""

    args: tuple[str, ...]
    version: EngineVersion | None
    scaling: bool
    seen: dict[str, str] = field(default_factory=dict)  # flag, with its key after a dot -> as written
    doubts: dict[str, tuple[int, str]] = field(default_factory=dict)  # reason -> index and message of the first

    def problems(self) -> Iterator[tuple[int, str]]:
        """Index and message of every problem."""
        index = 0
        while index < len(self.args):
            argument = self.args[index]
            if not _is_flag(argument):
                yield index, _stray(argument)
                index += 1
                continue
            spelling, equals, value = argument.partition("=")
            index += 1
            if message := _malformed(spelling):
                yield index - 1, message
                continue
            match = look_up(spelling)
            if not match.flags and (message := _mistaken(spelling)):
                yield index - 1, message
                index += self._count_values(match, index, has_value=bool(equals))
                continue
            given = value if equals else match.attached
            count = self._count_values(match, index, has_value=given is not None)
            following = self.args[index : index + count]
            values = following if given is None else (given,)
            yield from ((index - 1, message) for message in self._judge(spelling, match, given, values))
            self._doubt(index - 1, spelling, match)
            yield from ((index + at, _hidden(text)) for at, text in enumerate(following) if _VARIABLE.match(text))
            index += count

    def _count_values(self, match: Match, start: int, *, has_value: bool) -> int:
        """How many of the entries from `start` belong to this flag."""
        if has_value:
            return 0
        following = 0
        for argument in self.args[start:]:
            if _is_flag(argument):
                break
            following += 1
        if match.key is not None or len(match.flags) != 1:
            return min(following, 1)
        match match.flags[0].takes:
            case Takes.NONE:
                return 0
            case Takes.MANY:
                return following
            case _:
                return min(following, 1)

    def _judge(self, spelling: str, match: Match, given: str | None, values: Sequence[str]) -> Iterator[str]:
        if spelling.replace("_", "-").startswith(_ENABLE_REASONING):
            yield self._enable_reasoning()
            return
        if len(match.flags) > 1:
            names = ", ".join(flag.name for flag in match.flags[:4])
            more = ", ..." if len(match.flags) > 4 else ""
            yield f"{spelling} is ambiguous: vLLM knows {names}{more}; write it in full"
            return
        if not match.flags:
            if reason := REFUSED_BESIDE.get(_dashed(spelling)):
                yield f"{spelling}: {reason}"
            return
        flag = match.flags[0]
        shown = _shown(spelling, flag)
        if message := self._refusal(flag, match, values):
            yield shown + message
            return
        if flag.takes is Takes.NONE and given is not None:
            yield f"{shown}takes no value"
        elif flag.takes in (Takes.ONE, Takes.MANY) and not values:
            yield f"{shown}needs a value"
        if clash := self._repeated(flag, match.key, spelling):
            yield f"{shown}repeats {clash}: the engine would use only one of them"

    def _refusal(self, flag: Flag, match: Match, values: Sequence[str]) -> str | None:
        if flag.name in OWNED:
            return OWNED[flag.name]
        if flag.name in REFUSED:
            return REFUSED[flag.name]
        if flag.name == _LOG_STATS and self.scaling:
            return "it also stops the engine's metrics, which scaling needs (StatsDisabled)"
        refused, reason = REFUSED_VALUES.get(flag.name, (frozenset(), ""))
        if refused & set(values):
            return f"{values[0]} is not supported: {reason}"
        return _refused_key(flag, match, values)

    def _doubt(self, index: int, spelling: str, match: Match) -> None:
        """Note what the user should know of a flag that is let through."""
        if len(match.flags) > 1:
            return
        flag = match.flags[0] if match.flags else None
        reason = WARNED.get(flag.name) if flag else WARNED_BESIDE.get(_dashed(spelling))
        if reason is not None:
            shown = _shown(spelling, flag) if flag else f"{spelling}: "
            self.doubts.setdefault(reason, (index, shown + reason))
        elif flag is None:
            self.doubts.setdefault(spelling, (index, _unknown(spelling)))

    def _repeated(self, flag: Flag, key: str | None, spelling: str) -> str | None:
        """The earlier spelling of a flag that is given twice."""
        whole = flag.name
        name = whole if key is None else f"{whole}.{key}"
        clash = self.seen.get(name) or (self.seen.get(whole) if key is not None else None)
        if key is None and not clash:
            clash = next((written for seen, written in self.seen.items() if seen.startswith(f"{whole}.")), None)
        self.seen[name] = spelling
        return None if flag.repeatable or name.endswith("+") else clash

    def _enable_reasoning(self) -> str:
        if self.version is not None and self.version < (0, 9, 0):
            return f"{_ENABLE_REASONING}: model.parsers.reasoning adds it"
        if self.version is not None and self.version < (0, 10, 0):
            return f"{_ENABLE_REASONING}: deprecated, model.parsers.reasoning is enough"
        return f"{_ENABLE_REASONING}: removed in 0.10, model.parsers.reasoning is enough"


def _refused_key(flag: Flag, match: Match, values: Sequence[str]) -> str | None:
    """Why a key of a JSON argument cannot be given."""
    try:
        keys = list(_keys(match.key, values))
    except RecursionError:
        return "its JSON is nested too deeply to be checked"
    for key in keys:
        if (flag.name, key) in OWNED_KEYS:
            return f"{key}: {OWNED_KEYS[flag.name, key]}"
    if flag.name not in ONLY_KEYS:
        return None
    allowed, reason = ONLY_KEYS[flag.name]
    if keys and allowed.issuperset(keys):
        return None
    return f"{reason} (only {', '.join(sorted(allowed))} may be given here)"


def _shown(spelling: str, flag: Flag) -> str:
    return f"{spelling}: " if spelling == flag.name else f"{spelling} ({flag.name}): "


def _dashed(spelling: str) -> str:
    """A long flag's name with dashes, without keys after a dot."""
    return spelling[:2] + spelling[2:].partition(".")[0].replace("_", "-")


def _is_flag(argument: str) -> bool:
    """Whether the parser takes it for a flag; a negative number is a value."""
    return argument.startswith("-") and argument != "-" and not _NUMBER.match(argument)


def _malformed(spelling: str) -> str | None:
    if spelling == "--":
        return "--: not needed, every entry is one argument"
    if any(character.isspace() for character in spelling):
        flag = _short(spelling.split(maxsplit=1)[0])
        return f"{flag}: a flag and its value are two entries or joined by '='; every flag is an entry"
    if _VARIABLE.search(spelling):
        return f"{_short(spelling)}: the name of an argument must not come from a variable"
    return None


def _mistaken(spelling: str) -> str | None:
    """Why a flag that the parser does not know can only be a known one in a wrong spelling."""
    if spelling.startswith("---"):
        return f"{_short(spelling)}: is not an argument; a flag starts with one dash or two"
    name, dot, key = spelling.partition(".")
    lower = name.lower() + dot + key
    if lower != spelling and look_up(lower).flags:
        return f"{_short(spelling)}: flags of vLLM are case-sensitive; {_instead(look_up(lower), lower)}"
    if spelling.startswith("--"):
        return None
    for end in range(len(spelling) - 1, 2, -1):
        if flag := spellings().get(spelling[:end]):
            return f"{_short(spelling)}: {_instead(Match((flag,)), f'{spelling[:end]}={_short(spelling[end:])}')}"
    return None


def _instead(match: Match, written: str) -> str:
    """What to do instead of a wrong spelling: the right one, unless that could not be given either."""
    name = match.flags[0].name
    return OWNED.get(name) or REFUSED.get(name) or f"write {written}"


def _unknown(spelling: str) -> str:
    near = difflib.get_close_matches(_dashed(spelling), spellings(), n=1, cutoff=_NEAR)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"{_short(spelling)}: not an argument of the vLLM version this operator was tested with{hint};"
        " an engine without it does not start"
    )


def _stray(argument: str) -> str:
    if _VARIABLE.match(argument):
        return _hidden(argument)
    # Not repeated: it may be the value of a flag that takes none, and a secret.
    return "belongs to no flag; the model is set by model.id and model.source"


def _hidden(argument: str) -> str:
    return f"{_short(argument)}: on its own it could become any argument, write it as --flag=$(VAR)"


def _short(text: str) -> str:
    return shorten(text, _WIDTH)


def _keys(key: str | None, values: Sequence[str]) -> Iterator[str]:
    """Top-level keys of a JSON argument, given after a dot or in the value."""
    if key is not None:
        yield key.split(".")[0].rstrip("+")
        return
    for value in values:
        try:
            parsed = json.loads(value)
        except ValueError:
            continue
        if isinstance(parsed, dict):
            yield from parsed
