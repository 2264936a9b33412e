"""Catalogs of accelerators, models and parsers: data files with a source for each figure, read once."""

from reasoningpool.catalog.load import (
    accelerators,
    find_accelerator,
    find_model,
    models,
    parser_enforces_budgets,
    parser_since,
    suggest_accelerators,
    suggest_models,
)
from reasoningpool.catalog.types import AcceleratorEntry, ModelEntry, Source

__all__ = [
    "AcceleratorEntry",
    "ModelEntry",
    "Source",
    "accelerators",
    "find_accelerator",
    "find_model",
    "models",
    "parser_enforces_budgets",
    "parser_since",
    "suggest_accelerators",
    "suggest_models",
]
