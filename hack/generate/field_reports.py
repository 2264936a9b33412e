"""docs/field-reports.md from `tests/field_reports.yaml` and the tests that are marked `field_report`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from generate.markdown import code, page, table

_ROOT: Final = Path(__file__).parents[2]
_SOURCE: Final = "tests/field_reports.yaml"
_TESTS: Final = ("tests", "e2e", "runtime-image/tests")
_THREAD: Final = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)#(?P<number>\d+)")
_AREAS: Final[Mapping[str, str]] = {
    "S": "Sizing",
    "C": "Scaling",
    "R": "Rollouts and pods",
    "T": "Traffic and gateways",
    "G": "GitOps",
    "K": "Operator and API server",
    "M": "Metrics",
    "X": "Security",
    "U": "Using the resource and the engine",
}
_INTRO: Final = """
Problems that users of vLLM, its operators and the libraries used here reported in public, and the tests that show that
they cannot happen here. The code refers to an entry as "field report R06", a test with
`@pytest.mark.field_report("R06")`. An entry without a test is not covered yet.
"""


def field_reports() -> str:
    """A table for each area; an entry's area is the letter of its id."""
    tests = covering_tests()
    reports = yaml.safe_load((_ROOT / _SOURCE).read_text(encoding="utf-8"))
    parts = []
    for letter, area in _AREAS.items():
        rows = [
            (report["id"], report["report"], ", ".join(map(_link, report["sources"])), "<br>".join(tests[report["id"]]))
            for report in reports
            if report["id"].startswith(letter)
        ]
        parts += [f"## {area}", table(("id", "what was reported", "where", "tests"), rows)]
    return page(f"{_SOURCE} and the tests", "Field reports", _INTRO, *parts)


def known_reports() -> frozenset[str]:
    """Ids in the list."""
    return frozenset(report["id"] for report in yaml.safe_load((_ROOT / _SOURCE).read_text(encoding="utf-8")))


def covering_tests() -> Mapping[str, list[str]]:
    """For each id, `file`: `test` of the tests with its marker, in the order of paths and lines."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in _TESTS:
        for path in sorted((_ROOT / folder).rglob("test_*.py")):
            for report, name in _marked(ast.parse(path.read_text(encoding="utf-8"))):
                found[report].append(f"{code(path.name)}: {code(name)}")
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.field_report":
                    yield from ((ast.literal_eval(argument), function.name) for argument in decorator.args)


def _link(source: str) -> str:
    thread = _THREAD.match(source)
    if thread is None:
        return source
    return f"[{source}](https://github.com/{thread['repository']}/issues/{thread['number']})"
