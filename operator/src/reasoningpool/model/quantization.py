"""How a checkpoint's weights are stored: format, scales, and the modules left in 16 bit.

Bytes follow the parameters vLLM's quantization methods create (`model_executor/layers/quantization/`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError
from reasoningpool.model.integers import ceil_div


class WeightFormat(StrEnum):
    """How linear and expert weights are stored."""

    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    INT8 = "int8"
    INT4 = "int4"
    INT4_EXPERTS = "int4_experts"
    BNB4 = "bnb4"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"

    @property
    def multiplies_in_fp8(self) -> bool:
        """Whether GPUs with FP8 tensor cores multiply these weights in FP8: scales per channel and per block alike."""
        return self in {WeightFormat.FP8, WeightFormat.FP8_BLOCK}


FP8_BLOCK_SIZE: Final = 128
_MAX_GROUP: Final = 1 << 16
DEFAULT_GROUP: Final = 128  # AWQ and GPTQ checkpoints; compressed-tensors says its own
_SCALE_GROUPS: Final = {WeightFormat.MXFP4: 32, WeightFormat.NVFP4: 16, WeightFormat.BNB4: 64}


def quantized_bytes(fmt: WeightFormat, rows: int, columns: int, group: int = DEFAULT_GROUP) -> tuple[float, float]:
    """Bytes of the values and of the scales of one matrix of `rows` outputs and `columns` inputs.

    fp8        a 4-byte scale per output channel (per tensor: less)
    fp8_block  a 4-byte scale per 128 x 128 block (DeepSeek, Qwen3-FP8 checkpoints)
    int8       a 2-byte scale per group
    int4       a 2-byte scale and a 4-bit zero point per group (AWQ, GPTQ)
    int4_experts  a 2-byte scale per group of 32 (Kimi-K2-Thinking)
    bnb4       a 2-byte scale per 64 values
    mxfp4      a 1-byte scale per 32 values (OCP microscaling)
    nvfp4      a 1-byte scale per 16 values
    """
    elements = rows * columns
    match fmt:
        case WeightFormat.BF16:
            return 2.0 * elements, 0.0
        case WeightFormat.FP8:
            return elements, 4 * rows
        case WeightFormat.FP8_BLOCK:
            return elements, 4 * ceil_div(rows, FP8_BLOCK_SIZE) * ceil_div(columns, FP8_BLOCK_SIZE)
        case WeightFormat.INT8:
            return elements, 2 * rows * ceil_div(columns, group)
        case WeightFormat.INT4:
            return 0.5 * elements, 2.5 * rows * ceil_div(columns, group)
        case WeightFormat.INT4_EXPERTS:
            return 0.5 * elements, 2 * rows * ceil_div(columns, 32)
        case WeightFormat.BNB4:
            return 0.5 * elements, 2 * rows * ceil_div(columns, _SCALE_GROUPS[fmt])
        case WeightFormat.MXFP4 | WeightFormat.NVFP4:
            return 0.5 * elements, rows * ceil_div(columns, _SCALE_GROUPS[fmt])


_NAMES: Final[dict[str, WeightFormat]] = {
    "": WeightFormat.BF16,
    "none": WeightFormat.BF16,
    "bf16": WeightFormat.BF16,
    "bfloat16": WeightFormat.BF16,
    "fp16": WeightFormat.BF16,
    "float16": WeightFormat.BF16,
    "fp8": WeightFormat.FP8,
    "fp8_per_tensor": WeightFormat.FP8,
    "fp8_block": WeightFormat.FP8_BLOCK,
    "fp8_per_block": WeightFormat.FP8_BLOCK,
    "fbgemm_fp8": WeightFormat.FP8,
    "ptpc_fp8": WeightFormat.FP8,
    "modelopt": WeightFormat.FP8,
    "modelopt_fp4": WeightFormat.NVFP4,
    "nvfp4": WeightFormat.NVFP4,
    "mxfp4": WeightFormat.MXFP4,
    "gpt_oss_mxfp4": WeightFormat.MXFP4,
    "int8": WeightFormat.INT8,
    "w8a8": WeightFormat.INT8,
    "experts_int8": WeightFormat.INT8,
    "int4": WeightFormat.INT4,
    "int4_experts": WeightFormat.INT4_EXPERTS,
    "w4a16": WeightFormat.INT4,
    "awq": WeightFormat.INT4,
    "awq_marlin": WeightFormat.INT4,
    "gptq": WeightFormat.INT4,
    "gptq_marlin": WeightFormat.INT4,
    "auto_round": WeightFormat.INT4,
    "auto-round": WeightFormat.INT4,
    "bitsandbytes": WeightFormat.BNB4,
}
_STORED_KEYS: Final = ("quantization_config", "compression_config")
_METHOD_KEYS: Final = ("quant_method", "quantization")
_COMPRESSED: Final = frozenset({"compressed-tensors", "compressed_tensors", "quark"})
_BY_BITS: Final = frozenset({"awq", "gptq", "auto-round", "auto_round"})
EXPERTS_ONLY: Final = frozenset({WeightFormat.MXFP4, WeightFormat.INT4_EXPERTS})
_BITS: Final = {4: WeightFormat.INT4, 8: WeightFormat.INT8, 16: WeightFormat.BF16}
_IGNORE_KEYS: Final = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A weight format with what the checkpoint says beside it."""

    format: WeightFormat
    group_size: int = DEFAULT_GROUP
    ignored: tuple[str, ...] = ()  # names, parts of names, shell patterns, or `re:` expressions


def read_quantization(quantization: str | None, config: ConfigReader) -> Quantization:
    """The named format, else what the checkpoint's `quantization_config` says."""
    stored = config.mapping(*_STORED_KEYS)
    if quantization is not None:
        found = _NAMES.get(quantization.strip().lower())
        if found is None:
            known = ", ".join(sorted(name for name in _NAMES if name))
            message = f"quantization {quantization[:40]!r} is not supported; supported: {known}"
            raise GeometryError(message, field="quantization")
        if not stored.values:
            return Quantization(format=found)
    else:
        found = _stored_format(stored)
    return Quantization(format=found, group_size=_group_size(stored), ignored=_ignored(stored))


def doubtful_quantization(config: ConfigReader) -> str | None:
    """What of a configuration's quantization is not understood; its weights then count as 16 bit."""
    for key in _STORED_KEYS:
        stored = config.values.get(key)
        if stored is None:
            continue
        if not isinstance(stored, Mapping):
            return f"{key} is no object but {stored!r:.40}: the weights are taken as not quantized"
        reader = ConfigReader(stored)
        method = reader.text(*_METHOD_KEYS)
        known = method.lower() in {*_NAMES, *_COMPRESSED, *_BY_BITS}
        if (method or not reader.text("quant_algo")) and not (method and known):
            shown = stored.get("quant_method", stored.get("quantization"))
            return f"quant_method {shown!r:.40} of {key} is not known: the weights are taken as not quantized"
        return None
    return None


def _stored_format(stored: ConfigReader) -> WeightFormat:
    method = stored.text(*_METHOD_KEYS).lower()
    algorithm = stored.text("quant_algo").lower()
    if algorithm:
        return WeightFormat.NVFP4 if "fp4" in algorithm else WeightFormat.FP8
    if method in _COMPRESSED:
        return _compressed_tensors(stored)
    if method in _BY_BITS:
        bits = stored.optional("bits", "w_bit", high=32)
        return _BITS.get(bits if bits is not None else 4, WeightFormat.BF16)
    if method == "fp8" and stored.present("weight_block_size"):
        return WeightFormat.FP8_BLOCK
    if stored.flag("load_in_8bit", default=False):
        return WeightFormat.INT8
    return _NAMES.get(method, WeightFormat.BF16)  # an unknown method is taken as unquantized: the safe side


def _weight_schemes(stored: ConfigReader) -> list[ConfigReader]:
    groups = stored.mapping("config_groups")
    return [groups.mapping(name).mapping("weights") for name in groups.values if isinstance(name, str)]


def _compressed_tensors(stored: ConfigReader) -> WeightFormat:
    for weights in _weight_schemes(stored):
        bits = weights.optional("num_bits", high=32)
        if bits is None:
            continue
        if weights.text("type") == "float":
            if bits == 4:
                return WeightFormat.NVFP4
            return WeightFormat.FP8_BLOCK if weights.present("block_structure") else WeightFormat.FP8
        return _BITS.get(bits, WeightFormat.BF16)
    return WeightFormat.BF16


def _group_size(stored: ConfigReader) -> int:
    """Input channels that share a scale; -1 (one scale per output channel) counts as the largest group."""
    for found in (stored, *_weight_schemes(stored)):
        size = found.optional("group_size", "q_group_size", low=-1, high=_MAX_GROUP)
        if size is not None:
            return size if size > 0 else _MAX_GROUP
    return DEFAULT_GROUP


def _ignored(stored: ConfigReader) -> tuple[str, ...]:
    for key in _IGNORE_KEYS:
        if stored.present(key):
            names = stored.strings(key)
            if len(names) > _MAX_IGNORED or any(len(name) > _MAX_NAME for name in names):
                message = f"{key} has more than {_MAX_IGNORED} names or one above {_MAX_NAME} characters"
                raise GeometryError(message, field=key)
            _check_patterns(names, key)
            return names
    return ()


_MAX_IGNORED: Final = 20_000
_MAX_NAME: Final = 256
# Expressions come from users and run in the operator: those whose matching could explode are refused.
_NESTED_REPEAT: Final = re.compile(r"[*+?}]\)?[*+{]|\)[*+{]|\\[1-9]|\(\?[^:]")
_REPEAT: Final = re.compile(r"(?<!\\)(?:[*+]\??|\{|(?<!\()\?)")
_MAX_OPEN_REPEATS: Final = 4
_MODULE_LENGTH: Final = 60  # characters of a module's name
# Ways to try per module, in lengths of its name: those of one pattern, and of all patterns of a checkpoint together.
_MAX_WAYS: Final = 10_000
_MAX_WAYS_TOGETHER: Final = 20_000


class _Ignored:
    """Which modules a list of entries names.

    An entry names a module (`model.layers.0.self_attn.q_proj`), a parent of it, a part between dots, or is a pattern;
    vLLM's methods differ in which of these they take, checkpoints use the one theirs takes. Names are looked up, so
    that a list may name every module of a model.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        patterns = [entry for entry in entries if _is_pattern(entry)]
        self._patterns = tuple(_pattern(entry, "ignore") for entry in patterns)
        self._names = frozenset(_of_text_part(entry) for entry in entries if not _is_pattern(entry))

    def __contains__(self, module: str) -> bool:
        parts = module.split(".")
        spans = ((first, last) for first in range(len(parts)) for last in range(first + 1, len(parts) + 1))
        if any(".".join(parts[first:last]) in self._names for first, last in spans):
            return True
        return any(pattern.match(module) for pattern in self._patterns)


def _is_pattern(entry: str) -> bool:
    return entry.startswith("re:") or "*" in entry


def _of_text_part(entry: str) -> str:
    return entry.replace("language_model.", "")  # multimodal checkpoints put the text part below that name


@lru_cache(maxsize=4096)
def _pattern(entry: str, key: str) -> re.Pattern[str]:
    if not entry.startswith("re:"):
        parts = re.sub(r"\*+", "*", _of_text_part(entry)).split("*")[: _MAX_OPEN_REPEATS + 1]
        return re.compile("(?:.*\\.)?" + "[^/]*".join(re.escape(part) for part in parts) + "(?:\\..*)?$")
    expression = entry.removeprefix("re:")
    compiled = None
    if not _NESTED_REPEAT.search(expression) and _ways(entry) <= _MAX_WAYS:
        with suppress(re.error, OverflowError, RecursionError):
            compiled = re.compile(expression)
    if compiled is None:
        message = (
            f"{key} of the quantization has an unsupported expression: {expression[:60]!r}; "
            "write the module names, or leave it out (its modules then count as quantized)"
        )
        raise GeometryError(message, field=key)
    return compiled


def _ways(entry: str) -> float:
    """How many ways there are, at most about, to match a pattern with a module, in lengths of the module's name.

    With k repeats there are n^k / k! ways to share n characters out; each group of alternatives multiplies them.
    """
    if not entry.startswith("re:"):
        repeats, choices = min(entry.count("*"), _MAX_OPEN_REPEATS), 1.0
    else:
        repeats = len(_REPEAT.findall(entry))
        groups = max(1, entry.count("("))
        choices = (1 + entry.count("|") / groups) ** groups
    if repeats > _MAX_OPEN_REPEATS:
        return math.inf
    ways: float = choices * max(1.0, _MODULE_LENGTH ** (repeats - 1) / math.factorial(repeats))
    return ways


def _check_patterns(entries: Sequence[str], key: str) -> None:
    ways = 0.0
    for entry in filter(_is_pattern, entries):
        _pattern(entry, key)
        ways += _ways(entry)
    if ways > _MAX_WAYS_TOGETHER:
        message = (
            f"{key} of the quantization has too many patterns to be matched with every module: write the module names,"
            " or leave some out (their modules then count as quantized)"
        )
        raise GeometryError(message, field=key)


def ignored_layers(scheme: Quantization, name: str, layers: Sequence[int]) -> int:
    """In how many of `layers` the module `name` is left in 16 bit."""
    if not scheme.ignored:
        return 0
    ignored = _Ignored(scheme.ignored)
    return sum(f"model.layers.{layer}.{name}" in ignored for layer in layers)
