"""Public start-up observations as typed rows, read without trusting them.

Only settings, hardware and the outcome (KV memory, tokens) are read; of the log's own memory figures only the
weights (`logged_weight_bytes`), for the line that says what the model would give were they known. The derived
keys of the file are never read. Of `notes` only settings are taken, by the patterns below, never a memory figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

import yaml

GIB: Final = 1 << 30
_LARGEST: Final = 1e12  # beyond any count of tokens or blocks
Version = tuple[int, int, int]
_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_LOG_DATE: Final = re.compile(r"(?:log|logs?)(?:\s+dated)?\s+(\d{2})-\d{2}\s+\((\d{4})\)", re.IGNORECASE)
_MONTH: Final = re.compile(r"\b(20\d{2})-(\d{2})\b")
_SINCE: Final = re.compile(r"default since v(\d+)\.(\d+)\.(\d+)")  # of a message that only later engines print
_LINES_OF: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+) line numbers")
_OFFLOAD: Final = re.compile(r"cpu-offload-gb (\d+)")
_CONTEXT_PARALLEL: Final = re.compile(r"decode-context-parallel-size (\d+)")
_CAPACITY: Final = re.compile(r"KV (?:cache )?capacity (?:of )?(\d+) tokens|capacity of the KV cache \((\d+)\)")
_LAST_V0: Final = (0, 7, 3)

# The newest release at the end of a month, for logs that show a date and no version (PyPI upload dates).
RELEASES: Final[tuple[tuple[int, int, tuple[int, int, int]], ...]] = (
    (2024, 9, (0, 6, 1)), (2024, 12, (0, 6, 5)), (2025, 1, (0, 7, 0)), (2025, 2, (0, 7, 3)), (2025, 3, (0, 8, 2)),
    (2025, 4, (0, 8, 4)), (2025, 5, (0, 9, 0)), (2025, 6, (0, 9, 1)), (2025, 7, (0, 9, 2)), (2025, 8, (0, 10, 1)),
    (2025, 9, (0, 10, 2)), (2025, 10, (0, 11, 0)), (2025, 11, (0, 11, 1)), (2025, 12, (0, 12, 0)),
    (2026, 1, (0, 14, 0)), (2026, 2, (0, 15, 1)), (2026, 3, (0, 17, 0)), (2026, 4, (0, 19, 0)),
    (2026, 5, (0, 21, 0)), (2026, 6, (0, 22, 0)), (2026, 7, (0, 25, 0)), (2026, 8, (0, 27, 0)),
    (2026, 9, (0, 28, 0)), (2026, 10, (0, 30, 0)), (2026, 11, (0, 32, 0)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One row. `None`: not reported, or not readable."""

    id: str
    source: str
    model: str | None
    quantization: str | None
    weights_dtype: str | None  # as logs give it: the type of computation
    gpu: str | None
    nominal_gib: float | None
    total_bytes: int | None
    n_gpus: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    context_parallel: int
    utilization: float | None
    kv_cache_dtype: str
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enforce_eager: bool
    spec_decode: str | None
    block_size: int | None
    version: tuple[int, int, int] | None
    version_is_exact: bool  # False: from the date of the log
    newest_version: tuple[int, int, int] | None  # that could have written the log
    expert_parallel: bool
    cpu_offload_gib: float
    lora: bool
    kv_connector: bool
    observed_kv_bytes: int | None
    kv_bytes_resolution: float  # half a unit of the last digit printed
    observed_tokens: int | None
    refused_capacity_tokens: int | None  # tokens the pool has, from the message of an engine that refused to start
    logged_weight_bytes: int | None

    @property
    def source_name(self) -> str:
        """The repository or page; a repository file without a name is a source of its own."""
        if "repository file" in self.source or "issue:" in self.source:
            return self.source
        return re.split(r"[#: ]", self.source)[0]


def load(path: Path) -> list[Observation]:
    """All rows of a file in the form of the project's observations."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    if isinstance(rows, Mapping):  # a file may wrap its rows
        rows = next((value for value in rows.values() if isinstance(value, list)), [])
    return [observation(row) for row in rows if isinstance(row, Mapping)]


def observation(row: Mapping[str, Any]) -> Observation:
    """One row as an `Observation`. Anything unreadable counts as not reported."""
    notes = _text(row.get("notes")) or ""
    tensor_parallel = _integer(row.get("tp")) or 1
    version, newest = _version(row.get("vllm_version"), notes)
    kv = _number(row.get("available_kv_gib"))
    weights = _number(row.get("model_loading_gib"))
    total = _number(row.get("total_gpu_gib"))
    parallel = _CONTEXT_PARALLEL.search(notes)
    offload = _OFFLOAD.search(notes)
    spec = _text(row.get("spec_decode"))
    nominal = _number(row.get("gpu_memory_gib"))
    return Observation(
        id=str(row.get("id")),
        source=_text(row.get("source")) or "",
        model=_text(row.get("model")),
        quantization=_text(row.get("quantization")),
        weights_dtype=_text(row.get("weights_dtype")),
        gpu=_text(row.get("gpu")),
        nominal_gib=nominal if nominal and nominal > 0 else None,
        total_bytes=round(total * GIB) if total and total >= 1 else None,
        n_gpus=_integer(row.get("n_gpus")) or tensor_parallel,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=_integer(row.get("pp")) or 1,
        data_parallel=_integer(row.get("dp")) or 1,
        context_parallel=int(parallel.group(1)) if parallel else 1,
        utilization=_utilization(row.get("gpu_memory_utilization")),
        kv_cache_dtype=(_text(row.get("kv_cache_dtype")) or "auto").lower(),
        max_model_len=_integer(row.get("max_model_len")),
        max_num_seqs=_integer(row.get("max_num_seqs")),
        max_num_batched_tokens=_integer(row.get("max_num_batched_tokens")),
        enforce_eager=row.get("enforce_eager") is True,
        spec_decode=None if spec is None or spec.lower() in ("none", "false", "no") else spec.lower(),
        block_size=_integer(row.get("block_size")),
        version=version,
        version_is_exact=version is not None and version == newest,
        newest_version=newest,
        expert_parallel="expert parallel" in notes.lower(),
        cpu_offload_gib=float(offload.group(1)) if offload else 0.0,
        lora="lora" in f"{notes} {row.get('source')}".lower(),
        kv_connector="connector" in notes.lower(),
        observed_kv_bytes=round(kv * GIB) if kv is not None and kv > 0 else None,
        kv_bytes_resolution=_resolution(row.get("available_kv_gib")) * GIB,
        observed_tokens=_tokens(row),
        refused_capacity_tokens=_capacity(row.get("error")),
        logged_weight_bytes=round(weights * GIB) if weights and weights > 0 else None,
    )


def _tokens(row: Mapping[str, Any]) -> int | None:
    tokens = _integer(row.get("kv_tokens"))
    if tokens:
        return tokens
    blocks = _integer(row.get("num_gpu_blocks"))
    return blocks * (_integer(row.get("block_size")) or 16) if blocks else None


def _capacity(error: object) -> int | None:
    found = _CAPACITY.search(str(error or "").replace(",", ""))
    return int(found.group(1) or found.group(2)) if found else None


def _version(value: object, notes: str) -> tuple[Version | None, Version | None]:
    """The likeliest version and the newest possible one: the same where the row states it.

    Otherwise from the date of the log: the newest release a month before, and the newest at the time.
    """
    found = _VERSION.search(str(value)) if value is not None else None
    if found is not None and not str(value).strip().startswith((">", "<")):
        major, minor, patch = (int(part or 0) for part in found.groups())
        return (major, minor, patch), (major, minor, patch)
    lines = _LINES_OF.search(notes)
    if lines is not None:
        exact = (int(lines.group(1)), int(lines.group(2)), int(lines.group(3)))
        return exact, exact
    version = newest = None
    when = _written(notes)
    if when is not None:
        year, month = when
        newest = _released(year, month)
        version = _released(year - (month == 1), (month - 2) % 12 + 1) or newest
    since = _SINCE.search(notes)
    if since is not None:
        version = max(version or (0, 0, 0), (int(since.group(1)), int(since.group(2)), int(since.group(3))))
    if "V0 engine" in notes:
        return min(version or _LAST_V0, _LAST_V0), None
    return version, None if version == newest else newest


def _written(notes: str) -> tuple[int, int] | None:
    """Year and month of the log: "log 03-18 (2026)", or "2026-03"."""
    dated = _LOG_DATE.search(notes)
    if dated is not None:
        return int(dated.group(2)), int(dated.group(1))
    month = _MONTH.search(notes)
    return (int(month.group(1)), int(month.group(2))) if month is not None else None


def _released(year: int, month: int) -> Version | None:
    known = [version for y, m, version in RELEASES if (y, m) <= (year, month)]
    return known[-1] if known else None


def _resolution(value: object) -> float:
    text = str(value)
    return 0.5 * 10.0 ** -len(text.partition(".")[2]) if "." in text else 0.5


def _utilization(value: object) -> float | None:
    share = _number(value)
    if share is None:
        return None
    share = share / 100 if share > 1 else share
    return share if 0 < share <= 1 else None


def _number(value: object) -> float | None:
    """A finite figure of sane size, also out of a text such as "79.25 GiB"."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        number = float(value)
    else:
        found = re.search(r"-?\d+(?:\.\d+)?", str(value).replace(",", ""))
        if found is None:
            return None
        number = float(found.group())
    return number if isfinite(number) and abs(number) < _LARGEST else None


def _integer(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) and number > 0 else None


def _text(value: object) -> str | None:
    if value is None:
        return None
    text = str(value).strip()
    return text if text and text.lower() not in ("null", "none", "unknown", "n/a") else None


def by_source(rows: Iterable[Observation]) -> dict[str, list[Observation]]:
    """Rows by the repository or page they come from: what a cross-validation leaves out together."""
    groups: dict[str, list[Observation]] = {}
    for row in rows:
        groups.setdefault(row.source_name, []).append(row)
    return groups
