"""Reading ReasoningPools from files, with the line of everything that is wrong."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from reasoningpool.api.findings import Finding, error
from reasoningpool.api.names import GROUP, KIND
from reasoningpool.api.resource import ReasoningPool, SpecError, parse_pool

_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LISTS: Final = frozenset({"List", f"{KIND}List"})
_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
# A manifest is text of people; more than this is a mistake, and YAML aliases can make little text much.
_MOST_BYTES: Final = 8 * 1024 * 1024


class FileError(Exception):
    """A file that holds no usable pool; `lines` are complete messages, each with file and line."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True)
class PoolFile:
    """One pool of a file: typed, raw, and able to tell the line of a path."""

    pool: ReasoningPool
    document: Document

    def locate(self, finding: Finding) -> str:
        """A finding with the file and line where it stands."""
        return self.document.locate(finding)


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice (kubectl silently takes the last one) and times (they are text here)."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is written twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    @override
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # PyYAML's constructors trust an explicit tag: `!!bool x` is a KeyError, `!!timestamp x` an AttributeError.
        try:
            return super().construct_object(node, deep=deep)
        except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            value = f"{node.value!r:.60}" if isinstance(node, yaml.ScalarNode) else "this collection"
            raise yaml.constructor.ConstructorError(
                None, None, f"{value} is not a value of type {kind}", node.start_mark
            ) from None


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document of a file."""

    path: str
    root: yaml.Node
    body: Any

    def locate(self, finding: Finding) -> str:
        """`file:line: path: message`; the line is that of the nearest thing that is written."""
        return f"{self.path}:{self.line(finding.path)}: {finding}"

    def line(self, path: str) -> int:
        """Line of a field, or of the part above it that exists."""
        node, line = self.root, self.root.start_mark.line
        for name, index in _PART.findall(path):
            child = _child(node, name, index)
            if child is None:
                break
            line, node = child
        return line + 1


def _child(node: yaml.Node, name: str, index: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode) and name:
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == name:
                return key.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
        entry = node.value[int(index)]
        return entry.start_mark.line, entry
    return None


def read_pools(path: str) -> tuple[PoolFile, ...]:
    """All pools of a YAML or JSON file (`-`: standard input); other objects in it are passed over.

    Raises:
        FileError: the file cannot be read, is no YAML, holds no pool, or a pool in it is wrong.
    """
    shown, text = _text(path)
    documents = [entry for document in _documents(shown, text) for entry in _entries(document)]
    pools: list[PoolFile] = []
    wrong: list[str] = []
    for document in documents:
        if not isinstance(document.body, Mapping):
            wrong.append(
                f"{shown}:{document.root.start_mark.line + 1}: is not a Kubernetes object but {_kind(document.body)}"
            )
            continue
        if not _is_pool(document.body):
            continue
        wrong.extend(document.locate(finding) for finding in _unknown_fields(document.body))
        try:
            pools.append(PoolFile(parse_pool(document.body), document))
        except SpecError as invalid:
            wrong.extend(document.locate(finding) for finding in invalid.findings)
    if wrong:
        raise FileError(tuple(wrong))
    if not pools:
        raise FileError((f"{shown}: holds no {KIND}",))
    return tuple(pools)


def _entries(document: Document) -> list[Document]:
    """The objects of a List, as `kubectl get -o yaml` prints it; any other document is its only entry.

    What the cluster wrote (status, managedFields) is read over, like anything else beside spec and metadata.
    """
    body = document.body
    if not isinstance(body, Mapping) or body.get("kind") not in _LISTS:
        return [document]
    found = _child(document.root, "items", "")
    items = body.get("items")
    if found is None or not isinstance(found[1], yaml.SequenceNode) or not isinstance(items, list):
        raise FileError((document.locate(error("items", f"must be a list of objects in a {body['kind']}")),))
    return [Document(document.path, root, item) for root, item in zip(found[1].value, items, strict=True)]


def _unknown_fields(body: Mapping[Any, Any]) -> list[Finding]:
    """Fields beside the object's own: `kubectl apply` refuses them, and each may be a typo for one of those."""
    found = []
    for field in map(str, body):
        if field not in _FIELDS:
            near = difflib.get_close_matches(field, _FIELDS, n=1)
            found.append(error(field, "unknown field" + (f": did you mean {near[0]}?" if near else "")))
    return found


def _is_pool(body: Mapping[str, Any]) -> bool:
    """Anything that could be meant as a pool counts, so that a typo in kind or apiVersion is reported."""
    other = body.get("kind") not in {None, KIND} and not str(body.get("apiVersion", "")).startswith(f"{GROUP}/")
    return not other


def _bytes(path: str) -> bytes:
    """What is read; one byte above the limit is enough to know, and a device may never end."""
    if path == "-":
        return sys.stdin.buffer.read(_MOST_BYTES + 1)
    with Path(path).open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _text(path: str) -> tuple[str, str]:
    shown = "<stdin>" if path == "-" else path
    try:
        raw = _bytes(path)
        if len(raw) > _MOST_BYTES:
            raise FileError((f"{shown}: is larger than {_MOST_BYTES // 2**20} MiB",))
        return shown, raw.decode("utf-8")
    except OSError as error:
        raise FileError((f"{shown}: cannot be read: {error.strerror}",)) from None
    except UnicodeDecodeError as error:
        raise FileError((f"{shown}: is not UTF-8 text: {error.reason} at byte {error.start}",)) from None


def _documents(shown: str, text: str) -> list[Document]:
    try:
        roots = [root for root in yaml.compose_all(text, Loader=_Loader) if root is not None]
        bodies = [body for body in yaml.load_all(text, Loader=_Loader) if body is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise FileError((f"{shown}:{line}: is not valid YAML: {error.problem or error.context}",)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileError((f"{shown}: is not valid YAML: {error}",)) from None
    kept = [root for root in roots if not (isinstance(root, yaml.ScalarNode) and root.tag.endswith(":null"))]
    return [Document(shown, root, body) for root, body in zip(kept, bodies, strict=False)]


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number", bool: "a truth value"}.get(
        type(value), type(value).__name__
    )
