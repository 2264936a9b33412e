"""Base of every part of the resource, and the rules that span several fields.

A rule is stated twice, side by side: as CEL, which the API server evaluates, and as Python, which the
command line evaluates without a cluster. `tests/controlplane` holds the two against each other.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import CoreSchema
from typing_extensions import override

# Kubernetes API conventions write acronyms in one case.
_ACRONYMS: Final = {"kv": "KV", "json": "JSON", "dtype": "DType", "gpu": "GPU"}


def field_name(name: str) -> str:
    """A Python attribute's name on the wire.

    >>> field_name("kv_cache_dtype"), field_name("weight_bytes_per_gpu"), field_name("config_json")
    ('kvCacheDType', 'weightBytesPerGPU', 'configJSON')
    """
    head, *rest = name.split("_")
    return head + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule over several fields of one object; `field` is where the message belongs (a CEL fieldPath).

    `cel` is None where the schema already says it by another keyword.
    """

    cel: str | None
    holds: Callable[[Any], bool]
    message: str
    field: str | None = None


class ApiModel(BaseModel):
    """camelCase on the wire, frozen, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=field_name,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        # Most models are parts of another one and are never validated by themselves.
        defer_build=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.RULES:
            if not rule.holds(self):
                # The path below the object goes into the context: pydantic knows only the object's own.
                raise PydanticCustomError("rule", "{message}", {"message": rule.message, "field": rule.field or ""})
        return self

    @classmethod
    @override
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, text in attribute_docs(cls).items():
            if (field := schema["properties"].get(field_name(name))) is not None:
                schema["properties"][field_name(name)] = {"description": text} | field
        validations = [
            {"rule": rule.cel, "message": rule.message} | ({"fieldPath": rule.field} if rule.field else {})
            for rule in cls.RULES
            if rule.cel is not None
        ]
        return schema | ({"x-kubernetes-validations": validations} if validations else {})


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """The text below each attribute of a class and its bases, by name.

    pydantic's `use_attribute_docstrings` reads the source of every model when it is imported, which takes a third of
    a second; only the schema needs the texts.
    """
    texts: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if issubclass(base, ApiModel) and base is not ApiModel]):
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(node, ast.ClassDef)
        for attribute, text in pairwise(node.body):
            match attribute, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(value))):
                    texts[name] = inspect.cleandoc(value)
                case _:
                    pass
    return texts


def list_map(*, minimum: int = 0, maximum: int, key: str = "name") -> Any:
    """A list whose entries are merged by a key, as server-side apply needs it."""
    return Field(
        min_length=minimum or None,
        max_length=maximum,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]},
    )


def exactly_one(*names: str) -> Rule:
    """Exactly one of these fields is set."""
    wire = [field_name(name) for name in names]
    listed = ", ".join(wire[:-1]) + f" and {wire[-1]}"
    return Rule(
        cel=f"[{', '.join(f'has(self.{name})' for name in wire)}].filter(x, x).size() == 1",
        holds=lambda self: sum(getattr(self, name) is not None for name in names) == 1,
        message=f"set exactly one of {listed}",
    )


def at_most_one(first: str, second: str) -> Rule:
    """Not both of these fields are set."""
    one, two = field_name(first), field_name(second)
    return Rule(
        cel=f"!(has(self.{one}) && has(self.{two}))",
        holds=lambda self: getattr(self, first) is None or getattr(self, second) is None,
        message=f"set at most one of {one} and {two}",
        field=f".{one}",
    )


def unique(field: str, *keys: str) -> Rule:
    """Entries of a list differ in this key; the schema says it by `x-kubernetes-list-map-keys`."""

    def holds(self: Any) -> bool:
        entries = getattr(self, field) or ()
        seen = [tuple(getattr(entry, key) for key in keys) for entry in entries]
        return len(set(seen)) == len(seen)

    return Rule(
        cel=None,
        holds=holds,
        message=f"every entry must have a {field_name(keys[0])} of its own",
        field=f".{field_name(field)}",
    )
