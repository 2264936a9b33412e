"""Loading the data files, and finding entries by the names people write."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, TypeVar

import yaml

from reasoningpool.catalog.types import AcceleratorEntry, ModelEntry, Source

_GIB: Final = 1 << 30
_GPU_RESOURCE: Final = "nvidia.com/gpu"
_GPU_LABEL: Final = "nvidia.com/gpu.product"
_SUGGESTIONS: Final = 3
_CUTOFF: Final = 0.5
_SHORTEST_PART: Final = 2  # characters of a name that may stand for it
_Entry = TypeVar("_Entry")


class UnknownEntryError(LookupError):
    """A name the catalog does not have; `suggestions` are the nearest ones it has."""

    def __init__(self, message: str, *, name: str, suggestions: tuple[str, ...]) -> None:
        super().__init__(message)
        self.name = name
        self.suggestions = suggestions


@cache
def accelerators() -> Mapping[str, AcceleratorEntry]:
    """All accelerators by product name."""
    return MappingProxyType({name: _accelerator(name, item) for name, item in _read("accelerators.yaml").items()})


@cache
def models() -> Mapping[str, ModelEntry]:
    """All models by Hugging Face id."""
    found: dict[str, ModelEntry] = {}
    for item in _read("models.yaml"):
        for identifier, quantization in item["ids"].items():
            if identifier in found:
                message = f"models.yaml has {identifier} twice"
                raise ValueError(message)
            found[identifier] = _model(identifier, quantization, item)
    return MappingProxyType(found)


def find_accelerator(name: str) -> AcceleratorEntry:
    """The accelerator of this name (upper and lower case alike). Raises `UnknownEntryError`."""
    return _find(name, accelerators(), "accelerator", "describe it under accelerator.custom")


def find_model(identifier: str) -> ModelEntry:
    """The model of this id (upper and lower case alike). Raises `UnknownEntryError`."""
    return _find(identifier, models(), "model", "give the text of its config.json in model.configJSON")


def _find(name: str, entries: Mapping[str, _Entry], kind: str, otherwise: str) -> _Entry:
    folded = {key.lower(): key for key in entries}
    key = folded.get(name.strip().lower())
    if key is not None:
        return entries[key]
    near = _near(name, folded)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    message = f"the catalog has no {kind} {name[:100]!r}{hint} Otherwise {otherwise}."
    raise UnknownEntryError(message, name=name, suggestions=near)


def _near(name: str, folded: Mapping[str, str]) -> tuple[str, ...]:
    """The nearest names: whole, and by the part after the organisation."""
    wanted = name.strip().lower()[:200]
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


def _read(file: str) -> Any:
    text = resources.files("reasoningpool.catalog").joinpath(file).read_text(encoding="utf-8")
    return yaml.safe_load(text)


def _sources(items: Iterable[Mapping[str, Any]]) -> tuple[Source, ...]:
    return tuple(Source(text=item["text"], verified=not item.get("unverified", False)) for item in items)


def _accelerator(name: str, item: Mapping[str, Any]) -> AcceleratorEntry:
    memory, capability = item.get("memoryGiB"), item.get("computeCapability")
    major, minor = (int(part) for part in capability.split(".")) if capability else (0, 0)
    has_device = memory is not None
    return AcceleratorEntry(
        product=name,
        memory_bytes=int(memory * _GIB) if memory is not None else None,
        compute_capability=(major, minor) if capability else None,
        memory_bandwidth_bytes_per_s=float(item["bandwidth"]) if "bandwidth" in item else None,
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
        thinking_budget_enforceable=parser is not None and item.get("thinkingBudgetEnforceable", True),
        sources=_sources(item["sources"]),
    )
