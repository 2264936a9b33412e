"""Entries of the two catalogs. The figures live in data files beside this module, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reasoningpool.sizing.types import AcceleratorFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure comes from; `verified` is False where neither a public file nor a library default backs it."""

    text: str
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorEntry:
    """An accelerator product a tier can ask for by name.

    `resource_name` is the extended resource a pod requests (`None`: no device). `node_label_values` are
    alternatives of one node label's values, rendered as node affinity when there is more than one.
    """

    facts: AcceleratorFacts
    resource_name: str | None
    node_label_key: str | None
    node_label_values: tuple[str, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model the operator knows by its Hugging Face id.

    `config` holds the keys of its `config.json` that the geometry needs. `thinking_switch` is the chat
    template keyword that turns thinking off (`None`: cannot be turned off, or never thinks).
    `thinking_budget_enforceable` is False where the parser has no start and end strings.
    """

    id: str
    family: str
    config: Mapping[str, Any]
    weight_bytes: int | None
    checkpoint_quantization: str | None
    native_context_tokens: int
    reasoning_parser: str | None
    tool_call_parser: str | None
    thinking_switch: str | None
    thinks_by_default: bool
    parser_always_on: bool
    thinking_budget_enforceable: bool
    sources: tuple[Source, ...]
