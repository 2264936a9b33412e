"""docs/reference/resource.md from the schema of the CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from generate.markdown import code, page, table
from reasoningpool.api.crd import crd

_SOURCE = "operator/src/reasoningpool/api"
_INTRO = """
Every field of a ReasoningPool, as `kubectl explain rp` shows it. The schema has no defaults: what happens when a field
is left out is in its description ([why](../adr/0001-resource-without-defaults-and-unknown-fields-refused.md)). Unknown
fields are refused."""


def resource_reference() -> str:
    """One section per object of the schema, with its fields and rules; equal objects share the first one's."""
    (version,) = crd()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    shared: dict[str, str] = {}
    sections = [
        _section(path, node, shared)
        for name in ("spec", "status")
        for path, node in _objects(name, schema["properties"][name], shared)
    ]
    return page(_SOURCE, f"ReasoningPool {version['name']}", _INTRO, _rules(schema), *sections)


def _objects(path: str, node: dict[str, Any], shared: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The object at a path and those below it that have fields of their own, in the order of the schema.

    `shared` takes up the path of each by its content.
    """
    if "items" in node:
        yield from _objects(f"{path}[]", node["items"], shared)
    elif isinstance(values := node.get("additionalProperties"), dict):
        yield from _objects(f"{path}.*", values, shared)
    elif "properties" in node and shared.setdefault(_content(node), path) == path:
        yield path, node
        for name, child in node["properties"].items():
            yield from _objects(f"{path}.{name}", child, shared)


def _content(node: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in node.items() if key != "description"})


def _section(path: str, node: dict[str, Any], shared: dict[str, str]) -> str:
    required = node.get("required", ())
    rows = (
        (
            code(name),
            _type(child) + _see(f"{path}.{name}", child, shared),
            "yes" if name in required else "",
            child.get("description", ""),
        )
        for name, child in node["properties"].items()
    )
    text = f"\n{node['description']}\n" if node.get("description") else ""
    fields = table(("field", "type", "required", "description"), rows)
    return f"\n## {path}\n{text}{fields}{_rules(node)}".rstrip("\n")


def _see(path: str, node: dict[str, Any], shared: dict[str, str]) -> str:
    """Where the fields of an object stand that has no section of its own."""
    if "items" in node:
        return _see(f"{path}[]", node["items"], shared)
    first = shared.get(_content(node), path) if "properties" in node else path
    anchor = "".join(letter for letter in first.lower() if letter.isalnum())
    return "" if first == path else f", as [{first}](#{anchor})"


def _rules(node: dict[str, Any]) -> str:
    messages = [rule["message"] for rule in node.get("x-kubernetes-validations", ())]
    return "\n".join(["\nRules:\n", *(f"- {message}" for message in messages)]) if messages else ""


def _type(node: dict[str, Any]) -> str:
    if "items" in node:
        return f"list of {_type(node['items'])}{_bounds(node, 'Items', 'entries')}"
    if isinstance(values := node.get("additionalProperties"), dict):
        return f"map to {_type(values)}{_bounds(node, 'Properties', 'entries')}"
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in node:
        return "one of " + ", ".join(code(str(value)) for value in node["enum"])
    kind = str(node.get("type", "any"))
    return kind + (_range(node) if kind in {"integer", "number"} else _bounds(node, "Length", "characters"))


def _range(node: dict[str, Any]) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is None and high is None:
        return ""
    return f", at least {low:,}" if high is None else f", at most {high:,}" if low is None else f", {low:,} to {high:,}"


def _bounds(node: dict[str, Any], suffix: str, unit: str) -> str:
    most = node.get(f"max{suffix}")
    return "" if most is None else f", at most {most:,} {unit}"
