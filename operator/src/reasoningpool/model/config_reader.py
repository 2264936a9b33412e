"""Reading a Hugging Face `config.json` without trusting it.

Every value is checked for type and for sane bounds, and a miss says which key is asked for. The
bounds are far beyond any model published so far; they are there so that a typo is an answer, not an
overflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reasoningpool.model.errors import GeometryError
from reasoningpool.model.spellings import spelled
from reasoningpool.objects import shorten

_MAX_SHOWN = 40
# What PyTorch calls the types a checkpoint's values can have, with vLLM's short names.
_DTYPES: Final = frozenset(
    {"auto", "half", "float", "float16", "bfloat16", "float32", "float64", "int8", "uint8"}
    | {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"}
)


def _shown(value: object) -> str:
    return shorten(repr(value), _MAX_SHOWN)


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """Typed access to the text part of a model configuration."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, config: object) -> ConfigReader:
        """The text part: multimodal configurations keep it under `text_config` (older ones `llm_config`)."""
        if not isinstance(config, Mapping):
            message = f"configJSON must be a JSON object (the text of config.json), not {type(config).__name__}"
            raise GeometryError(message, field="configJSON")
        for key in ("text_config", "llm_config", "language_config"):
            inner = config.get(key)
            if isinstance(inner, Mapping) and "num_hidden_layers" in inner:
                outer = {k: v for k, v in config.items() if k not in (key, "model_type")}
                return cls(spelled({**outer, **inner}))
        return cls(spelled(config))

    def check_dtype(self) -> None:
        """The type of the checkpoint's values; Transformers may say one for each part of the model.

        Raises:
            GeometryError: it is none of PyTorch's.
        """
        for key in ("dtype", "torch_dtype"):
            value = self.values.get(key)
            if value is None or isinstance(value, Mapping):
                continue
            if not isinstance(value, str) or value.removeprefix("torch.") not in _DTYPES:
                message = f"{key} must be a type such as bfloat16 or float16, not {_shown(value)}"
                raise GeometryError(message, field=key)

    def present(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def integer(self, *keys: str, low: int = 1, high: int = 10**9, default: int | None = None) -> int:
        """The first of `keys` that is present, as an integer within bounds."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            if isinstance(value, bool) or not whole:
                message = f"{key} must be a whole number, not {_shown(value)}"
                raise GeometryError(message, field=key)
            if not low <= value <= high:
                message = f"{key} is {_shown(value)}; a model has {low} to {high}"
                raise GeometryError(message, field=key)
            return int(value)
        if default is not None:
            return default
        names = " or ".join(keys)
        message = f"the model configuration has no {names}; add it to configJSON (see the model's config.json)"
        raise GeometryError(message, field=keys[0])

    def optional(self, *keys: str, low: int = 0, high: int = 10**9) -> int | None:
        """Like `integer`, `None` when absent."""
        if any(self.present(key) for key in keys):
            return self.integer(*keys, low=low, high=high)
        return None

    def number(self, key: str, *, low: float, high: float, default: float) -> float:
        """A number within bounds."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            message = f"{key} must be a number from {low:g} to {high:g}, not {_shown(value)}"
            raise GeometryError(message, field=key)
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            message = f"{key} must be true or false, not {_shown(value)}"
            raise GeometryError(message, field=key)
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """A string; anything else counts as absent (model types are hints, not requirements)."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, str):
                return value
        return default

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            message = f"{key} must be a list of strings, not {_shown(value)}"
            raise GeometryError(message, field=key)
        return tuple(value)

    def integers(self, key: str, *, high: int = 10**6) -> frozenset[int]:
        """A list of whole numbers, as a set."""
        value = self.values.get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, (list, tuple)) or not all(type(item) is int and 0 <= item <= high for item in value):
            message = f"{key} must be a list of whole numbers from 0 to {high}, not {_shown(value)}"
            raise GeometryError(message, field=key)
        return frozenset(value)

    def mapping(self, *keys: str) -> ConfigReader:
        """A nested object, empty when absent."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, Mapping):
                return ConfigReader(value)
        return ConfigReader({})
