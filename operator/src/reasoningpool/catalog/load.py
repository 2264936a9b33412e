"""Loading the data files, and finding entries by the names people write."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, cast

import yaml

from reasoningpool.catalog.types import AcceleratorEntry, ModelEntry, Source
from reasoningpool.sizing.types import AcceleratorFacts

# PyYAML's own parser takes half a second for the catalog; that of libyaml, where the wheel has it, a tenth.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_GIB: Final = 1 << 30
_GPU_RESOURCE: Final = "nvidia.com/gpu"
_GPU_LABEL: Final = "nvidia.com/gpu.product"
_SUGGESTIONS: Final = 3
_CUTOFF: Final = 0.5
_SHORTEST_PART: Final = 2  # characters of a name that may stand for it
_LONGEST_NAME: Final = 200  # what is compared of a name


@cache
def accelerators() -> Mapping[str, AcceleratorEntry]:
    """All accelerators by product name."""
    entries = cast("Mapping[str, Mapping[str, Any]]", _read("accelerators.yaml"))
    return MappingProxyType({name: _accelerator(name, item) for name, item in entries.items()})


@cache
def models() -> Mapping[str, ModelEntry]:
    """All models by Hugging Face id."""
    found: dict[str, ModelEntry] = {}
    for item in cast("list[Mapping[str, Any]]", _read("models.yaml")):
        for identifier, quantization in item["ids"].items():
            if identifier in found:
                message = f"models.yaml has {identifier} twice"
                raise ValueError(message)
            found[identifier] = _model(identifier, quantization, item)
    return MappingProxyType(found)


def find_accelerator(name: str) -> AcceleratorEntry | None:
    """The accelerator of this name, upper and lower case alike."""
    return accelerators().get(_folded(accelerators()).get(_fold(name), ""))


def find_model(identifier: str) -> ModelEntry | None:
    """The model of this id, upper and lower case alike."""
    return models().get(_folded(models()).get(_fold(identifier), ""))


def suggest_accelerators(name: str) -> tuple[str, ...]:
    """The catalog's accelerators nearest to a name it does not have."""
    return _near(name, _folded(accelerators()))


def suggest_models(identifier: str) -> tuple[str, ...]:
    """The catalog's models nearest to an id it does not have."""
    return _near(identifier, _folded(models()))


def parser_since(kind: str, parser: str) -> tuple[int, int, int] | None:
    """The vLLM version that brought a parser (`kind` is `reasoning` or `toolCall`), `None` for one it does not have.

    (0, 0, 0) where the parser was there in the oldest version looked at.
    """
    for version, names in _parsers()[kind].items():
        if parser in names:
            major, minor, patch = (int(part) for part in version.split("."))
            return major, minor, patch
    return None


def parser_enforces_budgets(parser: str) -> bool:
    """Whether vLLM can hold a thinking budget with this reasoning parser: it needs start and end strings."""
    return parser not in _parsers()["withoutBudget"]


@cache
def _parsers() -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", _read("parsers.yaml"))


def _fold(name: str) -> str:
    return name.strip().lower()


def _folded(entries: Mapping[str, object]) -> dict[str, str]:
    return {_fold(key): key for key in entries}


def _near(name: str, folded: Mapping[str, str]) -> tuple[str, ...]:
    """The nearest names: whole, and by the part after the organisation."""
    wanted = _fold(name)[:_LONGEST_NAME]
    close = difflib.get_close_matches(wanted, list(folded), n=_SUGGESTIONS, cutoff=_CUTOFF)
    parts = {key.rsplit("/", 1)[-1]: key for key in folded}
    by_part = difflib.get_close_matches(wanted.rsplit("/", 1)[-1], list(parts), n=_SUGGESTIONS, cutoff=_CUTOFF)
    containing = [key for key in folded if len(wanted) >= _SHORTEST_PART and wanted in key]
    merged = [*containing, *close, *(parts[part] for part in by_part)]
    ranked = sorted(dict.fromkeys(merged), key=lambda key: -_likeness(wanted, key))
    ranked.sort(key=lambda key: key not in containing)
    return tuple(folded[key] for key in ranked[:_SUGGESTIONS])


def _likeness(wanted: str, key: str) -> float:
    whole = difflib.SequenceMatcher(None, wanted, key).ratio()
    part = difflib.SequenceMatcher(None, wanted.rsplit("/", 1)[-1], key.rsplit("/", 1)[-1]).ratio()
    return max(whole, part)


def _read(file: str) -> object:
    text = resources.files("reasoningpool.catalog").joinpath(file).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader


def _sources(items: Iterable[Mapping[str, Any]]) -> tuple[Source, ...]:
    return tuple(Source(text=item["text"], verified=not item.get("unverified", False)) for item in items)


def _accelerator(name: str, item: Mapping[str, Any]) -> AcceleratorEntry:
    memory, capability = item.get("memoryGiB"), item.get("computeCapability")
    major, minor = (int(part) for part in capability.split(".")) if capability else (0, 0)
    has_device = memory is not None
    return AcceleratorEntry(
        facts=AcceleratorFacts(
            product=name,
            memory_bytes=int(memory * _GIB) if memory is not None else None,
            compute_capability=(major, minor) if capability else None,
            memory_bandwidth_bytes_per_s=float(item["bandwidth"]) if "bandwidth" in item else None,
        ),
        resource_name=_GPU_RESOURCE if has_device else None,
        node_label_key=_GPU_LABEL if has_device else None,
        node_label_values=tuple(item.get("labels", ())),
        sources=_sources(item["sources"]),
    )


def _model(identifier: str, quantization: str | None, item: Mapping[str, Any]) -> ModelEntry:
    parser = item.get("reasoningParser")
    return ModelEntry(
        id=identifier,
        family=item["family"],
        config=MappingProxyType(dict(item["config"])),
        weight_bytes=None,
        checkpoint_quantization=quantization,
        native_context_tokens=item["config"]["max_position_embeddings"],
        reasoning_parser=parser,
        tool_call_parser=item.get("toolCallParser"),
        thinking_switch=item.get("thinkingSwitch"),
        thinks_by_default=item.get("thinksByDefault", False),
        parser_always_on=item.get("parserAlwaysOn", False),
        thinking_budget_enforceable=parser is not None and parser_enforces_budgets(parser),
        sources=_sources(item["sources"]),
    )
