"""What an engine's last words mean, and how they are quoted.

The text is of a tenant's making and is looked at in every plan of its pool, so the work is bounded: the last lines,
the beginning of each, and fixed words in a fixed order instead of expressions that could try many ways to match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Final

from reasoningpool.api.conditions import Reason
from reasoningpool.objects import redacted, shorten

MAX_LINES: Final = 200
MAX_LINE: Final = 2048  # characters
MAX_TEXT: Final = 65_536  # characters, as much of a log's end as is read
_MOST_WORDS: Final = 600  # characters shown


@dataclass(frozen=True, slots=True)
class TellingLine:
    """A line of a log whose meaning is known, as it may be shown."""

    line: str
    reason: Reason
    advice: str


@dataclass(frozen=True, slots=True)
class _Saying:
    """`phrases`: lower-case words; each entry is found where its parts follow one another in a line."""

    phrases: tuple[tuple[str, ...], ...]
    reason: Reason
    advice: str

    def is_in(self, line: str) -> bool:
        return any(_follow(parts, line) for parts in self.phrases)


def _follow(parts: tuple[str, ...], line: str) -> bool:
    at = 0
    for part in parts:
        found = line.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _saying(reason: Reason, advice: str, *phrases: str | tuple[str, ...]) -> _Saying:
    parts = (phrase if isinstance(phrase, tuple) else (phrase,) for phrase in phrases)
    return _Saying(tuple(tuple(part.lower() for part in phrase) for phrase in parts), reason, advice)


# What vLLM, transformers and the hub client say, most specific first. The words were seen in vLLM 0.32
# or in the public reports that the comments name.
_SAYINGS: Final = (
    _saying(  # field reports S01 and S14
        Reason.KV_CACHE_TOO_SMALL,
        "lower the budgets, use kvCacheDType FP8, or raise engine.kvCacheMemory or accelerator.perReplica",
        "No available memory for the cache blocks",
        "larger than the available KV cache memory",
        "larger than the maximum number of tokens that can be stored in KV cache",
        "KV cache is needed",
        "KV cache memory is needed",
    ),
    _saying(  # field report S05
        Reason.KV_CACHE_TOO_SMALL,
        "set the tier's maxNumSeqs to at most the number of blocks named",
        "exceeds available Mamba cache blocks",
    ),
    _saying(  # field reports S04 and S13
        Reason.OUT_OF_MEMORY,
        "lower engine.memoryUtilizationPercent or maxNumSeqs, or make sure nothing else uses the device",
        "out of memory",
        "OutOfMemoryError",
        "less than desired GPU memory utilization",
    ),
    _saying(
        Reason.MODEL_ACCESS_DENIED,
        "accept the model's licence and set model.source.huggingFace.tokenSecretRef to a token that may read it",
        "gated repo",
        ("Access to model ", " is restricted"),
        "awaiting a review",
        "401 Client Error",
        "403 Client Error",
        "Invalid user token",
    ),
    _saying(
        Reason.MODEL_NOT_FOUND,
        "check model.id, model.revision and model.source, and that the pod can reach the hub",
        "Repository Not Found",
        "is not a valid model identifier",
        "is not a local folder",
        "404 Client Error",
        "RevisionNotFound",
        "Invalid repository ID",
        "Can't load the configuration",
        "does not appear to have a file named",
        "LocalEntryNotFoundError",
        "couldn't connect to",
        "Repo id must be in the form",
    ),
    _saying(  # field report S06
        Reason.DTYPE_UNSUPPORTED,
        "use kvCacheDType BF16 or Auto, or other accelerators",
        "fp8e4nv",
        "Bfloat16 is only supported",
        *(
            f"is not supported {word} this {thing}"
            for word, thing in product(("on", "for"), ("architecture", "gpu", "device"))
        ),
        *((f"kv{mark}cache{mark}dtype", "not supported") for mark in "_- "),
    ),
    _saying(  # field reports U01 and U02
        Reason.BAD_ARGUMENT,
        "correct engine.extraArgs, model.parsers or engine.version",
        "unrecognized arguments",
        "invalid choice",
        "error: argument",
        ("invalid ", " value:"),
        ("parser '", "' not found"),
    ),
)
_ERROR: Final = re.compile(r"(Error|Exception|error|FATAL|Traceback)\b")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,16}m")
_PROCESS: Final = re.compile(r"\([A-Za-z_0-9 =]{0,64}pid=\d{1,10}\)\s{0,8}")
_LEVEL: Final = re.compile(
    r"(ERROR|WARNING|INFO|CRITICAL)\s{1,8}\d\d-\d\d \d\d:\d\d:\d\d\s{1,8}\[[^\]]{0,128}\]\s{0,8}"
)


def telling_line(text: str) -> TellingLine | None:
    """The last line that says something known: the engine prints causes before consequences; retries repeat them."""
    lines = [(line, line.lower()) for line in _lines(text)]
    for saying in _SAYINGS:
        for line, lower in reversed(lines):
            if saying.is_in(lower):
                return TellingLine(quoted(_plain(line)), saying.reason, saying.advice)
    return None


def last_error(text: str) -> str:
    """The last line that looks like an error, else the last line."""
    lines = [_plain(line) for line in _lines(text)]
    telling = [line for line in lines if _ERROR.search(line, 0, max(line.rfind(":"), 0))]
    return quoted((telling or lines or [""])[-1])


def quoted(text: str) -> str:
    """Words of others as they are shown: on one line, without secrets, not too many."""
    line = redacted(" ".join(text[:MAX_LINE].split()))
    return shorten(line, _MOST_WORDS)


def _lines(text: str) -> list[str]:
    """The last lines that hold something, the beginning of each."""
    lines = [line for line in text[-MAX_TEXT:].splitlines() if line and not line.isspace()]
    return [line[:MAX_LINE] for line in lines[-MAX_LINES:]]


def _plain(line: str) -> str:
    """A log line without vLLM's prefix of process, level, time and source, and without terminal colours."""
    line = _COLOUR.sub("", line).strip()
    for prefix in (_PROCESS, _LEVEL):
        if found := prefix.match(line):
            line = line[found.end() :]
    return line
