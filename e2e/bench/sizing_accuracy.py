"""How well the memory model predicts what servers printed: `python e2e/bench/sizing_accuracy.py FILE`.

FILE has the form of the project's public start-up observations. For each row with enough inputs the model's KV memory
(the likeliest figure) is compared with the printed one, in percent of the GPU's memory, and the tokens that follow
from the *printed* KV memory with the printed tokens. `memory_promised` scores the safe end instead, which plans
use. Rows that lack an input are listed with it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import known, observations
from bench.observations import GIB, Observation
from reasoningpool.sizing import AcceleratorFacts, ConcurrencyPolicy, Effort, Geometry, KVCacheDType, SizingInput
from reasoningpool.sizing.blocks import KVLayout, kv_layout
from reasoningpool.sizing.errors import SizingError
from reasoningpool.sizing.kv_elements import KVElements, PackedKVCacheDType
from reasoningpool.sizing.memory import MemoryShares, memory_shares
from reasoningpool.sizing.weights import WeightFormat

Version = tuple[int, int, int]
ASSUMED_VERSION: Final[Version] = (0, 11, 0)  # the middle of the versions that reports state
# kv062 (0.10.2), kv006 (0.20.0) print blocks over groups, kv040 (0.20.1) concurrency times max_model_len.
CONCURRENCY_TIMES_LENGTH: Final[Version] = (0, 20, 1)
_DTYPES: Final[dict[str, KVElements]] = {
    "auto": KVCacheDType.AUTO, "bfloat16": KVCacheDType.BF16, "bf16": KVCacheDType.BF16, "float16": KVCacheDType.FP16,
    "fp16": KVCacheDType.FP16, "fp8": KVCacheDType.FP8, "fp8_e4m3": KVCacheDType.FP8,
    "fp8_e5m2": KVCacheDType.FP8_E5M2, **{str(packed): packed for packed in PackedKVCacheDType},
}  # fmt: skip
_UNKNOWN_DEVICE: Final = AcceleratorFacts(
    product="unknown", memory_bytes=80 * GIB, compute_capability=(8, 0), memory_bandwidth_bytes_per_s=None
)
_EFFORT: Final = Effort(name="any", prompt_tokens=1024, thinking_tokens=0, answer_tokens=1024, share=1)


class MissingError(Exception):
    """An input that a prediction needs and the row does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The engine's settings of one prediction."""

    version: Version
    batched_tokens: int
    sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A row with what is known of its model and device."""

    row: Observation
    model: known.KnownModel
    geometry: Geometry
    device: AcceleratorFacts

    def inputs(self, settings: Settings, *, weight_bytes: int | None = None) -> SizingInput:
        """The row as the sizing takes it."""
        row = self.row
        return SizingInput(
            accelerator=self.device,
            tensor_parallel_size=row.tensor_parallel,
            geometry=self.geometry,
            weight_bytes=self._stated_weights() if weight_bytes is None else weight_bytes,
            kv_cache_dtype=KVCacheDType.AUTO,  # the memory model does not look at it
            memory_utilization_permille=round(1000 * (row.utilization or 0.9)),
            kv_cache_memory_bytes=None,
            efforts=(_EFFORT,),
            policy=ConcurrencyPolicy.WORST_CASE,
            preemption_risk_permille=0,
            draft_weight_bytes=self._draft_bytes(),
            vision_weight_bytes=self.model.vision_bytes,
            engine_version=settings.version,
            max_num_seqs=settings.sequences,
            max_num_batched_tokens=settings.batched_tokens,
            enforce_eager=row.enforce_eager,
        )

    def _stated_weights(self) -> int | None:
        """Weights less what is offloaded to the host, as the size of a checkpoint."""
        if not self.row.cpu_offload_gib:
            return None
        counts, fmt = self.geometry.weights, self.geometry.weight_format
        whole, per_gpu = counts.bytes_total(fmt), counts.bytes_per_gpu(fmt, self.row.tensor_parallel)
        return round(max(0.0, 1 - self.row.cpu_offload_gib * GIB / per_gpu) * whole)

    def _draft_bytes(self) -> int:
        """One layer for an MTP, EAGLE or DFlash draft: what such a draft adds beside shared tables."""
        return self.geometry.layer_weight_bytes if self.draft_layers else 0

    @property
    def kv_dtype(self) -> KVElements:
        """The KV cache's type. `auto` follows the checkpoint, and those modelopt writes in NVFP4 ask for FP8."""
        row = self.row
        if row.kv_cache_dtype == "auto" and self.geometry.weight_format is WeightFormat.NVFP4:
            return KVCacheDType.AUTO if "redhat" in (row.model or "").lower() else KVCacheDType.FP8
        return _DTYPES.get(row.kv_cache_dtype, KVCacheDType.AUTO)

    def refuse_unknown_draft(self) -> None:
        """Raises `MissingError` for a draft model that is not part of the model's own checkpoint family."""
        spec = self.row.spec_decode or ""
        if any(word in spec for word in ("draft", "dflash")):
            raise MissingError(f"geometry of the draft model ({spec})")

    @property
    def draft_layers(self) -> int:
        """KV layers of the draft model."""
        spec = self.row.spec_decode or ""
        return 1 if any(word in spec for word in ("mtp", "eagle", "dflash", "nextn")) else 0

    @property
    def speculative_tokens(self) -> int:
        """Draft tokens per step, 1 where the row does not say."""
        digits = [part for part in (self.row.spec_decode or "").replace(",", " ").split() if part.isdigit()]
        return int(digits[0]) if digits else 1


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


def subject(row: Observation) -> Subject:
    """What is known of the row. Raises `MissingError`."""
    if row.model is None:
        raise MissingError("model")
    model = known.find(row.model)
    if model is None:
        raise MissingError(f"geometry of {row.model}")
    quantization, is_known = known.quantization(row.model, row.quantization, model)
    if not is_known:
        raise MissingError(f"bytes per weight of {row.quantization or row.model}")
    try:
        geometry = Geometry.from_config(model.config, quantization or "none")
    except SizingError as error:
        raise MissingError(f"geometry of {row.model}: {error}") from error
    weights = geometry.weights.bytes_per_gpu(geometry.weight_format, row.tensor_parallel)
    device = device_of(row, weights)
    return Subject(row=row, model=model, geometry=geometry, device=device or _UNKNOWN_DEVICE)


def device_of(row: Observation, weight_bytes: int = 0) -> AcceleratorFacts | None:
    """The device by name and size; of two sizes of one product, those that can hold the weights and the printed KV."""
    on_gpu = max(0.0, weight_bytes - row.cpu_offload_gib * GIB)
    held = (row.observed_kv_bytes or 0) + on_gpu
    return known.device(row.gpu, row.nominal_gib, row.total_bytes, at_least_bytes=held / (row.utilization or 1))


def settings_of(found: Subject) -> tuple[Settings, tuple[Settings, ...], tuple[str, ...]]:
    """The likeliest settings, all that the row leaves open, and the names of what had to be assumed."""
    row, assumed = found.row, []
    versions: list[Version] = []
    if row.version is None:
        assumed.append("version")
        since = found.model.since or (0, 0, 0)
        versions = [max(since, v) for v in (ASSUMED_VERSION, (0, 8, 5), (0, 15, 0), (0, 20, 0), (0, 30, 0))]
    else:
        versions = [row.version]
        if not row.version_is_exact:
            assumed.append("version by date")
    every: list[Settings] = []
    if row.max_num_batched_tokens is None:
        assumed.append("max_num_batched_tokens")
    if row.max_num_seqs is None:
        assumed.append("max_num_seqs")
    for version in versions:
        server, offline, sequences = engine_defaults(version, found.device, row.max_model_len)
        tokens = [row.max_num_batched_tokens] if row.max_num_batched_tokens else [server, offline]
        for batched in tokens:
            limit = row.max_num_seqs or min(sequences, batched)
            every.append(Settings(version=version, batched_tokens=max(batched, limit), sequences=limit))
    return every[0], tuple(every), tuple(assumed)


def engine_defaults(version: Version, device: AcceleratorFacts, max_model_len: int | None) -> tuple[int, int, int]:
    """`max_num_batched_tokens` of the API server and of the offline class, and `max_num_seqs`, as the engine sets them.

    V0 (before 0.8) batched a whole context of up to 32,768 tokens, and 2,048 with chunked prefill beyond.
    """
    memory = device.memory_bytes or 0
    if version < (0, 8, 0):
        length = max_model_len or 8192
        whole = max(length, 2048) if length <= 32768 else 2048
        return whole, whole, 256
    if memory >= 160 * GIB and version >= (0, 15, 0):
        return 16_384, 16_384, 1024
    ampere = device.compute_capability == (8, 0)
    if memory >= 70 * GIB and not (ampere and version >= (0, 9, 0)):
        return 8192, 16_384, 1024
    return 2048, 8192, 256


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
    if found.device is _UNKNOWN_DEVICE:
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


def layout_of(found: Subject) -> KVLayout:
    """The KV groups and blocks of the row. Raises `MissingError` for layouts that are not modelled."""
    row = found.row
    if row.kv_cache_dtype not in _DTYPES:
        raise MissingError(f"KV layout of {row.kv_cache_dtype}")
    try:
        return kv_layout(
            found.geometry,
            found.device,
            tensor_parallel=row.tensor_parallel,
            dtype=found.kv_dtype,
            block_size=None,
            draft_layers=found.draft_layers,
            speculative_tokens=found.speculative_tokens if row.spec_decode else 0,
        )
    except SizingError as error:
        raise MissingError(f"KV layout: {error}") from error


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
    print("\n".join(summary(memory, tokens)))
    return 0


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
