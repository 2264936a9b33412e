"""A contract of import-linter: third parties are imported only where pyproject.toml lists them."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from typing_extensions import override

_ROOT: Final = "reasoningpool"


class ThirdParties(Contract):
    """Every import of a third party is listed, and everything listed is imported.

    `allowed` has one text per third party: `name: room, room.module`, below the root package; `*` is everywhere.
    """

    type_name = "third_parties"
    allowed = fields.ListField(subfield=fields.StringField())

    @override
    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        problems = violations(third_parties(graph), read_rules(cast("list[str]", self.allowed)))
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    @override
    def render_broken_contract(self, check: ContractCheck) -> None:
        for problem in cast("list[str]", check.metadata["problems"]):
            output.print_error(problem)


def read_rules(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Rooms by third party.

    >>> read_rules(["kopf: process.handlers", "yaml: cli, api.crd"])
    {'kopf': ('process.handlers',), 'yaml': ('cli', 'api.crd')}
    """
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): tuple(room.strip() for room in rooms.split(",")) for name, _, rooms in pairs}


def third_parties(graph: ImportGraph) -> dict[str, set[str]]:
    """Modules below the root, without the root's name, by the third party they import."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        name = module.partition(".")[0]
        if name == _ROOT or name in sys.stdlib_module_names:
            continue
        found[name] |= {
            importer.removeprefix(f"{_ROOT}.") for importer in graph.find_modules_that_directly_import(module)
        }
    return dict(found)


def violations(found: Mapping[str, set[str]], rules: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What is imported and not listed, and what is listed and not imported."""
    problems = []
    for name, importers in sorted(found.items()):
        rooms = rules.get(name, ())
        problems += [
            f"{_ROOT}.{importer} imports {name}, which is not listed for it"
            for importer in sorted(importers)
            if not any(_inside(importer, room) for room in rooms)
        ]
    for name, rooms in rules.items():
        problems += [
            f"{name} is listed for {room}, which does not import it"
            for room in rooms
            if not any(_inside(importer, room) for importer in found.get(name, ()))
        ]
    return problems


def _inside(module: str, room: str) -> bool:
    return room in {"*", module} or module.startswith(f"{room}.")
