"""Catalogs of accelerators and models: data files with a source for each figure, read once."""

from reasoningpool.catalog.load import (
    UnknownEntryError,
    accelerators,
    find_accelerator,
    find_model,
    models,
)
from reasoningpool.catalog.types import AcceleratorEntry, ModelEntry, Source

__all__ = [
    "AcceleratorEntry",
    "ModelEntry",
    "Source",
    "UnknownEntryError",
    "accelerators",
    "find_accelerator",
    "find_model",
    "models",
]
