"""The contract about third parties finds what is not listed and what is listed in vain."""

from __future__ import annotations

from import_contracts import read_rules, violations

RULES = read_rules(["kopf: process.handlers", "yaml: cli, api.crd"])
FOUND = {"kopf": {"process.handlers"}, "yaml": {"cli.files", "api.crd"}}


def test_listed_imports_keep_the_contract() -> None:
    assert violations(FOUND, RULES) == []


def test_an_import_in_another_room_breaks_it() -> None:
    found = FOUND | {"yaml": {"cli.files", "api.crd", "client.files"}}
    assert violations(found, RULES) == ["reasoningpool.client.files imports yaml, which is not listed for it"]


def test_a_new_third_party_breaks_it() -> None:
    found = FOUND | {"polars": {"requests.log"}}
    assert violations(found, RULES) == ["reasoningpool.requests.log imports polars, which is not listed for it"]


def test_a_room_that_no_longer_imports_it_breaks_it() -> None:
    assert violations(FOUND | {"yaml": {"cli.files"}}, RULES) == [
        "yaml is listed for api.crd, which does not import it"
    ]
