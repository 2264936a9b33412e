"""The ReasoningPool as a whole, and the one place where a raw object becomes a typed one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from reasoningpool.api.findings import Finding, error
from reasoningpool.api.names import API_VERSION, KIND, MAX_NAME_LENGTH
from reasoningpool.api.scalars import TEXT_PATTERN
from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.objects import shorten

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# A DNS label (RFC 1123), as Kubernetes wants a namespace.
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SpecError(ValueError):
    """The object is no valid ReasoningPool; `findings` says all that is wrong with it."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("; ".join(str(finding) for finding in findings))
        self.findings = findings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPool:
    """A parsed pool."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: ReasoningPoolSpec


def parse_pool(body: Mapping[str, Any]) -> ReasoningPool:
    """A raw object, from a file or from the API, as a typed one.

    Raises:
        SpecError: with every error found, each with the path of its field.
    """
    errors = _identity_errors(body)
    try:
        spec = ReasoningPoolSpec.model_validate(body.get("spec"))
    except ValidationError as invalid:
        raise SpecError((*errors, *_spec_errors(invalid))) from None
    metadata = body.get("metadata") if isinstance(body.get("metadata"), Mapping) else {}
    name = str((metadata or {}).get("name", ""))
    errors += tuple(
        error(
            f"spec.tiers[{index}].name",
            f"pool name and tier name together must be shorter than {MAX_NAME_LENGTH} characters",
        )
        for index, tier in enumerate(spec.tiers)
        if len(name) + len(tier.name) >= MAX_NAME_LENGTH
    )
    if errors:
        raise SpecError(errors)
    assert metadata is not None
    generation = metadata.get("generation", 1)
    return ReasoningPool(
        name=name,
        namespace=metadata.get("namespace") or "default",
        uid=str(metadata.get("uid", "")),
        generation=generation if isinstance(generation, int) else 1,
        spec=spec,
    )


def _identity_errors(body: Mapping[str, Any]) -> tuple[Finding, ...]:
    found: list[Finding] = []
    if body.get("apiVersion") != API_VERSION:
        found.append(error("apiVersion", f"must be {API_VERSION}, not {body.get('apiVersion')!r}"))
    if body.get("kind") != KIND:
        found.append(error("kind", f"must be {KIND}, not {body.get('kind')!r}"))
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        found.append(
            error(
                "metadata.name",
                "must be set to lower-case letters, digits and '-', starting with a letter and ending with no '-',"
                f" since it becomes part of Service names; not {name!r:.80}",
            )
        )
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    if namespace and not (isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)):
        found.append(
            error(
                "metadata.namespace",
                "must have lower-case letters, digits and '-' only, 63 at most, the first and last no '-';"
                f" not {namespace!r:.80}",
            )
        )
    return tuple(found)


def _spec_errors(invalid: ValidationError) -> tuple[Finding, ...]:
    found: list[Finding] = []
    entries = invalid.errors(include_url=False)
    for entry in entries:
        if entry["type"] == "too_short" and any(_is_below(other["loc"], entry["loc"]) for other in entries):
            continue  # an entry that failed is not counted, which is no second fault
        field = str((entry.get("ctx") or {}).get("field", "")) if entry["type"] == "rule" else ""
        found.append(error(_path(entry["loc"]) + field, _message(entry)))
    return tuple(dict.fromkeys(found))


def _is_below(location: tuple[int | str, ...], above: tuple[int | str, ...]) -> bool:
    return len(location) > len(above) and location[: len(above)] == above


def _path(location: tuple[int | str, ...]) -> str:
    path = "spec"
    for part in location:
        # pydantic names the branch of a union it tried; only fields and indexes are the user's words.
        if isinstance(part, int):
            path += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", part):
            path += f".{part}"
    return path


# pydantic's words for a wrong type, in the words of YAML.
_KINDS: Final = {str: "text", int: "number", float: "number", bool: "truth value", list: "list", dict: "object"}
_EXPECTED: Final = {
    "int_type": "must be a whole number",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false",
    "model_type": "must be an object with fields",
    "model_attributes_type": "must be an object with fields",
    "dict_type": "must be an object with fields",
    "tuple_type": "must be a list",
}
_PLAIN: Final = {
    "extra_forbidden": "unknown field",
    "missing": "required field is missing",
    "none_required": "must not be empty",
}
_WITH_CONTEXT: Final = {
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "enum": "must be one of {expected}, not {value}",
    "string_pattern_mismatch": "must match {pattern}, not {value}",
}


_MOST_SHOWN: Final = 60
# What stands in these fields may be a secret and is not repeated.
_UNREPEATED: Final = frozenset({"value", "extraArgs", "args", "command", "annotations", "inline"})


def _message(entry: Any) -> str:
    kind = entry["type"]
    value = shorten(repr(entry.get("input")), _MOST_SHOWN)
    if not _UNREPEATED.isdisjoint(entry["loc"]):
        value = f"this {_KINDS.get(type(entry.get('input')), 'value')}"
    if kind == "rule":
        return str(entry["msg"])
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "string_pattern_mismatch" and entry["ctx"]["pattern"] == TEXT_PATTERN:
        return "must not contain the character NUL, which no process can take"
    if kind in _WITH_CONTEXT:
        return _WITH_CONTEXT[kind].format(value=value, **entry["ctx"])
    text = _EXPECTED.get(kind) or str(entry["msg"]).removeprefix("Value error, ")
    return f"{text}, not {value}"
