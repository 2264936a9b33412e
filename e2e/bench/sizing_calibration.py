"""Where the memory constants come from, and how they do on sources they were not taken from.

`python e2e/bench/sizing_calibration.py FILE` reads the parts that logs print (peak activation, non-torch memory), which
the accuracy benchmark never reads, turns each into an estimate of one constant, and compares the median with the
constant in use. Then every source is left out in turn: the constants are taken from the other sources' rows alone,
and the left-out rows are predicted with them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import observations, sizing_accuracy
from bench.observations import GIB, Observation
from bench.subjects import MissingError, Settings, Subject, settings_of, subject
from reasoningpool.sizing import constants as c
from reasoningpool.sizing.memory import forward_bytes

_WITHOUT_NVLINK: Final = ((7, 5), (8, 6), (8, 9), (12, 0), (12, 1))
# A constant no other source tells anything of is left at what is known without measuring.
_UNKNOWN: Final[Mapping[str, float]] = {
    "SAMPLER_SORT": 9.5,  # the sum of its parts
    "SAMPLER_KERNEL": 3.5,
    "NON_TORCH_BYTES": 0.0,
    "COMMUNICATION_BYTES": 0.0,
    "COMMUNICATOR_BYTES": 0.0,
    "COMMUNICATION_BYTES_PCIE": 0.0,
    "GRAPH_BYTES_PER_LAYER_AND_SIZE": 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One row's estimate of one constant."""

    constant: str
    row: str
    source: str
    value: float


def evidence(raw: Sequence[Mapping[str, Any]]) -> list[Evidence]:
    """What the printed parts of the rows tell of the constants."""
    found: list[Evidence] = []
    for item in raw:
        row = observations.observation(item)
        for name, value in _of_row(row, item):
            found.append(Evidence(constant=name, row=row.id, source=row.source_name, value=value))
    return found


def _of_row(row: Observation, item: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    peak, non_torch = item.get("peak_activation_gib"), item.get("non_torch_gib")
    try:
        found = subject(row)
    except MissingError:
        found = None
    if found is not None and peak is not None and not row.lora:
        yield from _sampler(found, float(peak) * GIB)
    if non_torch is not None and item.get("n_gpus"):
        yield from _non_torch(row, found, float(non_torch) * GIB)
    estimate = item.get("cudagraph_estimate_gib")
    if found is not None and estimate is not None:
        sizes = 51  # 256 sequences
        yield "GRAPH_BYTES_PER_LAYER_AND_SIZE", float(estimate) * GIB / (sizes * found.geometry.num_layers)


def _sampler(found: Subject, peak: float) -> Iterator[tuple[str, float]]:
    settings: Settings = settings_of(found)[0]
    if settings.version >= c.FIRST_SECOND_RUNNER_ALL or found.row.n_gpus < found.row.tensor_parallel:
        return
    geometry = found.geometry
    forward = forward_bytes(
        geometry,
        tensor_parallel=found.row.n_gpus,
        batched_tokens=settings.batched_tokens,
        compiled=settings.version >= c.FIRST_COMPILED,
    )
    kept = settings.batched_tokens * geometry.hidden_size * 2
    if peak <= 1.05 * forward.central + kept:
        return  # the forward pass may be the larger
    factor = (peak - kept) / (settings.sequences * geometry.vocab_size * 4)
    yield ("SAMPLER_SORT" if settings.version < c.FIRST_WITHOUT_SORT else "SAMPLER_KERNEL"), factor


def _non_torch(row: Observation, found: Subject | None, size: float) -> Iterator[tuple[str, float]]:
    if row.n_gpus == 1:
        yield "NON_TORCH_BYTES", size
        return
    if found is None:
        return
    beyond = size - c.NON_TORCH_BYTES.central
    if found.device.compute_capability in _WITHOUT_NVLINK:
        yield "COMMUNICATION_BYTES_PCIE", beyond
    elif settings_of(found)[0].version >= c.FIRST_SNAPSHOT_AFTER_NCCL:
        yield "COMMUNICATION_BYTES", beyond
    else:
        yield "COMMUNICATOR_BYTES", beyond - c.COMMUNICATION_BYTES.central


def median_of(known: Sequence[Evidence], name: str) -> float | None:
    """The median of the rows' estimates of one constant."""
    values = [item.value for item in known if item.constant == name]
    return statistics.median(values) if values else None


@contextmanager
def constants_from(known: Sequence[Evidence], names: Sequence[str]) -> Iterator[None]:
    """The memory model with the medians of `known` for its likeliest figures."""
    before = {name: getattr(c, name) for name in names}
    try:
        for name, constant in before.items():
            median = median_of(known, name)
            setattr(c, name, replace(constant, likeliest=_UNKNOWN[name] if median is None else median))
        yield
    finally:
        for name, constant in before.items():
            setattr(c, name, constant)


def cross_validated(raw: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, float, float]]:
    """Source, row, error with the constants in use, error with constants from the other sources; percent of the GPU."""
    known = evidence(raw)
    names = sorted({item.constant for item in known})
    errors = []
    for source, rows in observations.by_source([observations.observation(item) for item in raw]).items():
        in_use = sizing_accuracy.report(rows)[0]
        if not in_use:
            continue
        with constants_from([item for item in known if item.source != source], names):
            left_out = sizing_accuracy.report(rows)[0]
        errors += [(source, a.row.id, a.error, b.error) for a, b in zip(in_use, left_out, strict=True)]
    return errors


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    raw = yaml.safe_load(parser.parse_args(argv).file.read_text(encoding="utf-8"))
    known = evidence(raw)
    print("| constant | in use: likeliest, safe | median of rows | rows |\n|---|---|---|---|")
    for name in sorted({item.constant for item in known}):
        items = [item for item in known if item.constant == name]
        scale = 1.0 if name.startswith("SAMPLER") else 1 / (c.MIB if name.startswith("GRAPH") else GIB)
        constant: c.Constant = getattr(c, name)
        rows = ", ".join(f"{item.row} {item.value * scale:.2f}" for item in items)
        median = (median_of(known, name) or 0) * scale
        print(f"| {name} | {constant.central * scale:.2f}, {constant.value * scale:.2f} | {median:.2f} | {rows} |")
    print("\n| source left out | row | error % of GPU | error without the source's own rows |\n|---|---|---|---|")
    errors = cross_validated(raw)
    for source, row, in_use, left_out in errors:
        print(f"| {source} | {row} | {in_use:+.2f} | {left_out:+.2f} |")
    print()
    print(sizing_accuracy.memory_line("memory", [error for _, _, error, _ in errors]))
    print(sizing_accuracy.memory_line("cross_validated", [error for *_, error in errors]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
