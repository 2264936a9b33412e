"""What the benchmark knows of models and devices by the names people write in reports.

Models: the catalog's, and those of `model_configs.yaml`. Names are matched tolerantly: organisation, case,
separators, tuning and quantization suffixes do not count. Devices: the catalog's products.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from reasoningpool.catalog import accelerators, find_model, models
from reasoningpool.sizing import AcceleratorFacts

_CONFIGS: Final = Path(__file__).with_name("model_configs.yaml")
_SEPARATORS: Final = re.compile(r"[\s/_(),:|+-]+")
# Quantization as it appears in names and fields, most specific first. `None`: 16 bit.
_QUANTIZATIONS: Final[tuple[tuple[str, str | None], ...]] = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("modelopt_fp4", "nvfp4"), ("fp4", "nvfp4"),
    ("awq", "awq"), ("gptq", "gptq"), ("autoround", "gptq"), ("auto_round", "gptq"), ("auto-round", "gptq"),
    ("w4a16", "w4a16"), ("int4", "int4"), ("4bit", "int4"), ("4-bit", "int4"), ("bnb", "bitsandbytes"),
    ("bitsandbytes", "bitsandbytes"), ("w8a8", "w8a8"), ("int8", "int8"), ("fp8", "fp8"),
    ("bfloat16", None), ("bf16", None), ("float16", None), ("fp16", None),
)  # fmt: skip
_FOUR_BITS: Final = ("mxfp4", "int4")
_EXPERTS_ONLY: Final = ("mxfp4", "int4_experts")
_NO_FORMAT: Final = ("exl2", "exl3", "gguf", "hqq", "aqlm", "quip")
# Products that reports name and the catalog does not offer: GiB the driver gives and compute capability, from general
# knowledge of such reports (the low end where they differ).
_OTHERS: Final[dict[str, tuple[float, tuple[int, int]]]] = {
    "A800-80GB": (79.14, (8, 0)), "H800-80GB": (79.10, (9, 0)), "L20-48GB": (44.40, (8, 9)),
    "RTX-4090D-24GB": (23.52, (8, 9)), "RTX-4080-16GB": (15.57, (8, 9)), "RTX-4060-16GB": (15.57, (8, 9)),
    "RTX-5080-16GB": (15.46, (12, 0)), "RTX-5070-16GB": (15.46, (12, 0)), "RTX-5060-16GB": (15.46, (12, 0)),
    "RTX-3060-12GB": (11.63, (8, 6)), "RTX-4070-12GB": (11.60, (8, 9)), "RTX-2080-11GB": (10.57, (7, 5)),
    "RTX-A5000-24GB": (23.55, (8, 6)), "RTX-A4000-16GB": (15.61, (8, 6)), "RTX-4000-Ada-20GB": (19.55, (8, 9)),
    "RTX-5000-Ada-32GB": (31.48, (8, 9)), "MI300X-192GB": (191.69, (9, 4)), "MI325X-256GB": (255.69, (9, 4)),
}  # fmt: skip
_NOMINAL_TOLERANCE: Final = 0.1
_FORMS: Final = ("sxm", "pcie", "nvl")
_SIZE: Final = re.compile(r"(\d+) ?gi?b\b", re.IGNORECASE)
_OPTIONAL: Final = ("rtx", "blackwell")  # parts of product names that people leave out
_SAME_SIZE: Final = 1.02  # products closer than this are one for our purpose
_BLOCK_FP8_ORGANISATIONS: Final = ("qwen/", "deepseek-ai/", "moonshotai/", "minimaxai/", "zai-org/")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """Geometry of a model by a matched name."""

    name: str
    config: Mapping[str, Any]
    checkpoint: str | None
    since: tuple[int, int, int] | None


@cache
def _known() -> Mapping[str, KnownModel]:
    found: dict[str, KnownModel] = {}
    for item in yaml.safe_load(_CONFIGS.read_text(encoding="utf-8")):
        since = item.get("since")
        for name in item["names"]:
            found[_joined(name)] = KnownModel(
                name=name,
                config=item["config"],
                checkpoint=item.get("checkpoint"),
                since=tuple(int(part) for part in since.split(".")) if since else None,
            )
    for identifier, entry in models().items():
        name = identifier.rsplit("/", 1)[-1].lower()
        known = found.get(_joined(name))
        found[_joined(name)] = KnownModel(
            name=name,
            config=entry.config,
            checkpoint=entry.checkpoint_quantization,
            since=known.since if known else None,
        )
    return found


def _joined(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())


def find(model: str) -> KnownModel | None:
    """The known model whose name is the longest run of whole parts of `model`.

    "cyankiwi/Qwen3-32B-Instruct-AWQ-4bit" is Qwen3-32B; "Hermes-3-Llama-3.1-8B" has the geometry of Llama-3.1-8B.
    """
    exact = find_model(model)
    if exact is not None:
        return _known()[_joined(exact.id.rsplit("/", 1)[-1])]
    parts = [part for part in _SEPARATORS.split(model.lower()) if part]
    best: KnownModel | None = None
    longest = 0
    for start in range(len(parts)):
        for end in range(len(parts), start, -1):
            candidate = "".join(parts[start:end])
            if len(candidate) <= longest:
                break
            known = _known().get(candidate)
            if known is not None:
                best, longest = known, len(candidate)
    return best


def quantization(model: str, stated: str | None, known: KnownModel) -> tuple[str | None, bool]:
    """The weights' format by the stated field, else the name, else the published checkpoint; False if unknown to us."""
    for text in (stated or "", model):
        folded = text.lower()
        if any(word in folded for word in _NO_FORMAT):
            return None, False
        for word, name in _QUANTIZATIONS:
            if word not in folded:
                continue
            if name == "fp8" and model.lower().startswith(_BLOCK_FP8_ORGANISATIONS):
                return "fp8_block", True
            if name in _FOUR_BITS and known.checkpoint in _EXPERTS_ONLY:
                return known.checkpoint, True
            return name, True
    return known.checkpoint, True


def device(
    gpu: str | None, nominal_gib: float | None, total_bytes: int | None, *, at_least_bytes: float = 0
) -> AcceleratorFacts | None:
    """The device of a report, `None` where it could be products of different size.

    A stated total wins. Products that could not hold what the report shows (`at_least_bytes`) are left out.
    """
    everything = _products()
    fitting = list(everything)
    if gpu is not None:
        fitting = [entry for entry in fitting if _is_named(entry, gpu)]
    size = _SIZE.search(gpu or "")
    if nominal_gib is None and size is not None:
        nominal_gib = float(size.group(1))
    if nominal_gib is not None:
        near = [entry for entry in fitting if _nominal(entry) == round(nominal_gib)]
        fitting = near or [e for e in fitting if abs(_bytes(e) / 2**30 / nominal_gib - 1) < _NOMINAL_TOLERANCE]
    if total_bytes is not None:
        nearest = min(fitting or everything, key=lambda entry: abs(_bytes(entry) - total_bytes))
        return replace(nearest, memory_bytes=total_bytes)
    fitting = [entry for entry in fitting if _bytes(entry) >= at_least_bytes]
    if gpu is None or not fitting:
        return None
    smallest, largest = (pick(fitting, key=_bytes) for pick in (min, max))
    if len({entry.compute_capability for entry in fitting}) > 1:
        return None
    return smallest if _bytes(largest) <= _SAME_SIZE * _bytes(smallest) else None


@cache
def _products() -> tuple[AcceleratorFacts, ...]:
    offered = [entry.facts for entry in accelerators().values() if entry.facts.memory_bytes is not None]
    others = [
        replace(offered[0], product=name, memory_bytes=int(gib * 2**30), compute_capability=capability)
        for name, (gib, capability) in _OTHERS.items()
    ]
    return (*offered, *others)


def _is_named(facts: AcceleratorFacts, gpu: str) -> bool:
    """Whether the product's model name is in the text in whole words: "DGX Spark (GB10)" is GB10, "L40S" not L40."""
    words = [word for word in re.split(r"[\s/_(),-]+", gpu.lower()) if word]
    runs = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    parts = [part for part in facts.product.lower().split("-") if not part.endswith("gb")]
    forms = [part.rstrip("0123456789") for part in parts if part.rstrip("0123456789") in _FORMS]
    model = [p for p in parts if p.rstrip("0123456789") not in _FORMS and p not in _OPTIONAL]
    if not (set(model) <= set(words) or "".join(model) in runs or "rtx" + "".join(model) in runs):
        return False
    stated = [form for form in _FORMS if any(word.startswith(form) for word in words)]
    return not stated or not forms or stated == forms


def _nominal(facts: AcceleratorFacts) -> int:
    found = re.search(r"(\d+)GB$", facts.product)
    return int(found.group(1)) if found else round(_bytes(facts) / 2**30)


def _bytes(facts: AcceleratorFacts) -> int:
    return facts.memory_bytes or 0
