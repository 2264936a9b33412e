"""Reading request logs: CSV or one JSON object per line, plain or gzip, in one pass and little memory.

Works as they are on the Azure LLM inference traces of 2023 (CSV), BurstGPT (CSV), the Mooncake traces (JSONL) and
logs that keep the `usage` object of an OpenAI-compatible answer.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, BinaryIO, Final

from pydantic_core import from_json

from reasoningpool.requests.columns import Columns, Role, choose
from reasoningpool.requests.errors import CapacityError, LogError
from reasoningpool.requests.lines import Lines
from reasoningpool.requests.log import RequestLog
from reasoningpool.requests.log_builder import Collector
from reasoningpool.requests.log_fields import TimeUnit

_SAMPLE: Final = 100  # rows whose keys tell the columns of a JSON log
_DEEPEST: Final = 4
_DELIMITERS: Final = ",;\t|"
_MOONCAKE_KEY: Final = "hash_ids"


def read_log(
    stream: BinaryIO, *, columns: Mapping[Role, str] | None = None, time_unit: TimeUnit | None = None
) -> RequestLog:
    """The requests of a log.

    Args:
        stream: the file, at its start.
        columns: names of columns by role, for those that have none of the usual names.
        time_unit: unit of numeric times. Default: by their size, relative ones in seconds (Mooncake: milliseconds).

    Raises:
        LogError: the file holds no requests or a value that is none, with its line.
    """
    lines = Lines(stream)
    first = next((line for line in lines if not line.isspace()), None)
    if first is None:
        raise LogError("is empty")
    if first.lstrip().startswith("["):
        raise LogError("is a JSON list; write one object per line, for example with jq -c '.[]'", line=lines.number)
    read = _read_json if first.lstrip().startswith("{") else _read_csv
    return read(first, lines, columns or {}, time_unit)


def _read_csv(first: str, lines: Lines, stated: Mapping[Role, str], unit: TimeUnit | None) -> RequestLog:
    start = lines.number
    rows = csv.reader(chain([first], lines), delimiter=max(_DELIMITERS, key=first.count), strict=True)
    try:
        header = [name.strip() for name in next(rows)]
    except csv.Error as error:
        raise LogError(f"is not valid CSV: {error}", line=lines.number) from None
    columns = _chosen(header, stated, start)
    collector = Collector(columns, unit)
    places = {role: header.index(name) for role, name in columns.of.items()}
    collector.take_all(_csv_rows(rows, len(header), lines), places)
    return collector.log()


def _csv_rows(rows: Iterator[list[str]], width: int, lines: Lines) -> Iterator[tuple[list[str], int]]:
    """The rows with their lines, without empty ones; all have as many fields as the header."""
    try:
        for row in rows:
            if len(row) == width:
                yield row, lines.number
            elif row:
                raise LogError(f"has {len(row)} fields, the header has {width}", line=lines.number)
    except csv.Error as error:
        raise LogError(f"is not valid CSV: {error}", line=lines.number) from None


def _chosen(names: Iterable[str], stated: Mapping[Role, str], line: int) -> Columns:
    try:
        return choose(names, stated)
    except CapacityError as error:
        raise LogError(str(error), line=line) from None


def _read_json(first: str, lines: Lines, stated: Mapping[Role, str], unit: TimeUnit | None) -> RequestLog:
    start = lines.number
    objects = _objects(first, lines)
    sample = list(islice(objects, _SAMPLE))
    names = dict.fromkeys(name for _, body in sample for name in _keys(body))
    columns = _chosen(names, stated, start)
    if unit is None and _MOONCAKE_KEY in names:
        unit = TimeUnit.MILLISECONDS
    collector = Collector(columns, unit)
    getters = [_getter(name) for name in columns.of.values()]
    rows = (([get(body) for get in getters], number) for number, body in chain(sample, objects))
    collector.take_all(rows, {role: place for place, role in enumerate(columns.of)})
    return collector.log()


def _objects(first: str, lines: Lines) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line in chain([first], lines):
        if line.isspace():
            continue
        try:
            body = from_json(line)  # nearly three times as fast as the standard library's
        except ValueError as error:
            what = str(error).replace(" line 1 column ", " character ")
            raise LogError(f"is not valid JSON: {what}", line=lines.number) from None
        if not isinstance(body, dict):
            raise LogError("is not a JSON object", line=lines.number)
        yield lines.number, body


def _keys(body: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[str]:
    for key, value in body.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _keys(value, f"{path}{key}.", depth + 1)
        else:
            yield path + key


def _getter(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Reads a key, or a path of keys, which may not have dots of their own."""
    parts = name.split(".")
    if len(parts) == 1:
        return lambda body: body.get(name)

    def nested(body: Mapping[str, Any]) -> Any:
        value: Any = body
        try:
            for part in parts:
                value = value[part]
        except (KeyError, TypeError):  # not there, or null on the way
            return None
        return value

    return nested
