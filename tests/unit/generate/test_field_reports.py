"""Ids of field reports, in tests and in the code, are in the list."""

from __future__ import annotations

import re

import generate
from generate.field_reports import covering_tests, known_reports

REFERENCE = re.compile(r"[Ff]ield reports? ([A-Z]\d\d)(?: and ([A-Z]\d\d))?")
SOURCES = [" ".join(path.read_text().split()) for path in (generate.ROOT / "operator/src").rglob("*.py")]


def test_marked_tests_name_reports_of_the_list() -> None:
    assert covering_tests().keys() <= known_reports()


def test_references_in_the_code_are_in_the_list() -> None:
    named = {name for text in SOURCES for match in REFERENCE.finditer(text) for name in match.groups() if name}
    assert named
    assert named <= known_reports()


def test_the_code_refers_to_reports_in_full() -> None:
    assert not [hit for text in SOURCES for hit in re.findall(r"\b[CGKMRSTUX]\d\d\b", REFERENCE.sub("", text))]
