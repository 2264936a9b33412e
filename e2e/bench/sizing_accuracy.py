"""How well the memory model predicts what servers printed: `python e2e/bench/sizing_accuracy.py FILE`.

FILE has the form of the project's public start-up observations. For each row with enough inputs the model's KV memory
(the likeliest figure) is compared with the printed one, in percent of the GPU's memory, and the tokens that follow
from the *printed* KV memory with the printed tokens. `memory_promised` scores the safe end instead, which plans
use. Rows that lack an input are listed with it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import observations
from bench.observations import GIB, Observation
from bench.subjects import UNKNOWN_DEVICE, MissingError, Settings, Subject, layout_of, settings_of, subject
from reasoningpool.sizing.kv.blocks import KVLayout
from reasoningpool.sizing.memory import MemoryShares, memory_shares

HELD_OUT: Final = Path(__file__).parents[2] / "tests" / "data" / "kv_held_out.json"
# kv062 (0.10.2), kv006 (0.20.0) print blocks over groups, kv040 (0.20.1) concurrency times max_model_len.
CONCURRENCY_TIMES_LENGTH: Final = (0, 20, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResult:
    """Predicted and observed KV memory in bytes; `low` and `high` bound the assumed settings."""

    row: Observation
    settings: Settings
    predicted: int
    promised: int
    low: int
    high: int
    observed: int
    device_bytes: int
    assumed: tuple[str, ...]
    known_weights: int | None

    @property
    def error(self) -> float:
        """Predicted minus observed, in percent of the GPU's memory."""
        return 100 * (self.predicted - self.observed) / self.device_bytes

    @property
    def inside(self) -> bool:
        """Whether the observed figure lies in the interval."""
        return self.low - self.row.kv_bytes_resolution <= self.observed <= self.high + self.row.kv_bytes_resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenResult:
    """Tokens predicted from the printed KV memory (two decimals of GiB) and observed ones."""

    row: Observation
    predicted: int
    observed: int

    @property
    def error(self) -> float:
        """Predicted minus observed, in percent of the observed."""
        return 100 * (self.predicted - self.observed) / self.observed


def memory_result(found: Subject) -> MemoryResult:
    """Predicted against printed KV memory. Raises `MissingError`."""
    row = found.row
    if row.observed_kv_bytes is None:
        raise MissingError("available_kv_gib")
    if row.utilization is None:
        raise MissingError("gpu_memory_utilization")
    if row.pipeline_parallel > 1:
        raise MissingError("a model of pipeline parallelism")
    if row.n_gpus != row.tensor_parallel * row.data_parallel:
        raise MissingError(f"how {row.n_gpus} GPUs make tensor-parallel groups of {row.tensor_parallel}")
    found.refuse_unknown_draft()
    if found.device is UNKNOWN_DEVICE:
        raise MissingError("GPU product or its total memory")
    central, every, assumed = settings_of(found)
    shares = [_shares(found, settings) for settings in every]
    known_weights = None
    if row.logged_weight_bytes is not None:
        beside = _shares(found, central)
        known_weights = beside.central_pool + beside.weights - row.logged_weight_bytes
    return MemoryResult(
        row=row,
        settings=central,
        predicted=shares[0].central_pool,
        promised=shares[0].pool,
        low=min(share.pool for share in shares),
        high=max(share.central_pool + share.reserve for share in shares),
        observed=observed_pool(found),
        device_bytes=found.device.memory_bytes or 0,
        assumed=assumed,
        known_weights=known_weights,
    )


def observed_pool(found: Subject) -> int:
    """The pool of the rank that has least, which is the engine's.

    A log may quote the KV memory of another rank. Where the tokens an engine refused with need less than the
    memory quoted, and the model has one KV group so that tokens tell bytes, they give the pool.
    """
    row = found.row
    quoted = row.observed_kv_bytes or 0
    if row.refused_capacity_tokens is None:
        return quoted
    layout = layout_of(found)
    if layout.full_groups + layout.sliding_groups + layout.state_groups > 1:
        return quoted
    blocks = row.refused_capacity_tokens // (layout.block_size * row.context_parallel)
    return min(quoted, blocks * layout.bytes_per_block)


def _shares(found: Subject, settings: Settings) -> MemoryShares:
    inputs = found.inputs(settings)
    return memory_shares(inputs, batched_tokens=settings.batched_tokens, sequences=settings.sequences)


def token_result(found: Subject) -> TokenResult:
    """Tokens from the printed KV memory. Raises `MissingError`."""
    row = found.row
    if row.observed_kv_bytes is None:
        raise MissingError("available_kv_gib")
    if row.observed_tokens is None:
        raise MissingError("kv_tokens")
    found.refuse_unknown_draft()
    layout = layout_of(found)
    settings = settings_of(found)[0]
    groups = layout.full_groups + layout.sliding_groups + layout.state_groups
    if groups > 1 and row.max_model_len is None and not row.version_is_exact:
        raise MissingError(
            "max_model_len or the engine version, on which the printed tokens of several KV groups depend"
        )
    predicted = row.context_parallel * printed_tokens(layout, row.observed_kv_bytes, row.max_model_len, settings)
    return TokenResult(row=row, predicted=predicted, observed=row.observed_tokens)


def printed_tokens(layout: KVLayout, pool_bytes: int, max_model_len: int | None, settings: Settings) -> int:
    """The token figure of the engine's log: until 0.20.0 blocks over groups, later concurrency times length."""
    blocks = pool_bytes // layout.bytes_per_block
    groups = layout.full_groups + layout.sliding_groups + layout.state_groups
    if groups == 1 or settings.version < CONCURRENCY_TIMES_LENGTH:
        return blocks // groups * layout.block_size
    if max_model_len is None:
        raise MissingError("max_model_len, on which the printed tokens of several KV groups depend")
    return int(blocks / layout.planner_blocks(max_model_len, settings.batched_tokens) * max_model_len)


def report(rows: Sequence[Observation]) -> tuple[list[MemoryResult], list[TokenResult], dict[str, list[str]]]:
    """All results, and for each row that lacks something what it lacks."""
    memory: list[MemoryResult] = []
    tokens: list[TokenResult] = []
    missing: dict[str, list[str]] = {}
    for row in rows:
        for name, results, predict in (("memory", memory, memory_result), ("tokens", tokens, token_result)):
            try:
                results.append(predict(subject(row)))  # type: ignore[arg-type]
            except MissingError as error:
                missing.setdefault(row.id, []).append(f"{name}: {error}")
    return memory, tokens, missing


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(100 * share) // 100) - 1)]


def memory_line(name: str, errors: Sequence[float]) -> str:
    """`NAME rows=… median_abs_pct=… p90_abs_pct=… max_over_pct=…` of signed errors in percent."""
    if not errors:
        return f"{name} rows=0 median_abs_pct=nan p90_abs_pct=nan max_over_pct=nan"
    sizes = [abs(error) for error in errors]
    return (
        f"{name} rows={len(errors)} median_abs_pct={statistics.median(sizes):.2f} "
        f"p90_abs_pct={percentile(sizes, 0.9):.2f} max_over_pct={max(0.0, *errors):.2f}"
    )


def tokens_line(errors: Sequence[float]) -> str:
    """`tokens rows=… median_abs_pct=… max_abs_pct=…` of signed errors in percent."""
    if not errors:
        return "tokens rows=0 median_abs_pct=nan max_abs_pct=nan"
    sizes = [abs(error) for error in errors]
    return f"tokens rows={len(errors)} median_abs_pct={statistics.median(sizes):.3f} max_abs_pct={max(sizes):.2f}"


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="observations, YAML or JSON")
    rows = observations.load(parser.parse_args(argv).file)
    memory, tokens, missing = report(rows)
    _print_memory(memory)
    _print_tokens(tokens)
    print("\n| row | not predicted, for want of |\n|---|---|")
    for identifier, reasons in missing.items():
        print(f"| {identifier} | {'; '.join(reasons)} |")
    print()
    for side, chosen in _sides(rows):
        if chosen:
            print(f"{side}, {len(chosen)} rows")
            side_memory, side_tokens, _ = report(chosen)
            print("\n".join(summary(side_memory, side_tokens)) + "\n")
    print(f"all, {len(rows)} rows")
    print("\n".join(summary(memory, tokens)))
    return 0


def held_out_ids() -> frozenset[str]:
    """Rows that no constant is fitted on, chosen by their sources."""
    sources = json.loads(HELD_OUT.read_text(encoding="utf-8"))["sources"]
    return frozenset(row for source in sources for row in source["rows"])


def _sides(rows: Sequence[Observation]) -> list[tuple[str, list[Observation]]]:
    held_out = held_out_ids()
    return [
        ("calibrating", [row for row in rows if row.id not in held_out]),
        ("held out", [row for row in rows if row.id in held_out]),
    ]


def summary(memory: Sequence[MemoryResult], tokens: Sequence[TokenResult]) -> list[str]:
    """The closing lines; the last two are the ones to compare."""
    with_weights = [r for r in memory if r.known_weights is not None]
    known_errors = [100 * ((r.known_weights or 0) - r.observed) / r.device_bytes for r in with_weights]
    promised_errors = [100 * (r.promised - r.observed) / r.device_bytes for r in memory]
    assumed = [r for r in memory if r.assumed]
    inside = sum(r.inside for r in assumed)
    return [
        f"interval rows={len(assumed)} inside={inside} outside={len(assumed) - inside}",
        memory_line("memory_promised", promised_errors),
        memory_line("memory_known_weights", known_errors),
        memory_line("memory", [r.error for r in memory]),
        tokens_line([r.error for r in tokens]),
    ]


def _print_memory(results: Sequence[MemoryResult]) -> None:
    print("| row | model | KV predicted GiB | observed | error % of GPU | promised | assumed, interval GiB |")
    print("|---|---|---|---|---|---|---|")
    for r in results:
        third = ""
        if r.assumed:
            side = "inside" if r.inside else "outside"
            version = ".".join(map(str, r.settings.version))
            limits = f"{version}, {r.settings.batched_tokens} tokens, {r.settings.sequences} sequences"
            third = f"{', '.join(r.assumed)} ({limits}): {r.low / GIB:.2f} to {r.high / GIB:.2f}, {side}"
        promised = 100 * (r.promised - r.observed) / r.device_bytes
        print(
            f"| {r.row.id} | {r.row.model} | {r.predicted / GIB:.2f} | {r.observed / GIB:.2f} | {r.error:+.2f} | "
            f"{promised:+.2f} | {third} |"
        )


def _print_tokens(results: Sequence[TokenResult]) -> None:
    print("\n| row | model | tokens predicted | observed | error % |\n|---|---|---|---|---|")
    for r in results:
        print(f"| {r.row.id} | {r.row.model} | {r.predicted:,} | {r.observed:,} | {r.error:+.3f} |")


if __name__ == "__main__":
    sys.exit(main())
