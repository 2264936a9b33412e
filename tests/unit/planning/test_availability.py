"""What planning may apply in a cluster that lacks an optional kind."""

from __future__ import annotations

import pytest

from reasoningpool.objects import KINDS, Availability, Kind
from reasoningpool.objects.kinds import OWN
from reasoningpool.planning.snapshot import Snapshot

WIDGET = Kind(
    api_version="example.org/v1", kind="Widget", plural="widgets", rank=9, watched=True, installed_with="x", grants=OWN
)


@pytest.mark.parametrize(
    ("availability", "expected"),
    [
        ({}, False),
        ({WIDGET: Availability.NOT_INSTALLED}, False),
        ({WIDGET: Availability.FORBIDDEN}, False),
        ({WIDGET: Availability.AVAILABLE}, True),
    ],
)
def test_an_optional_kind_is_applied_where_it_is_available(availability, expected):
    assert Snapshot(pool={}, availability=availability).can_apply(WIDGET) is expected


def test_what_every_cluster_has_needs_no_availability():
    assert all(Snapshot(pool={}).can_apply(kind) for kind in KINDS)
