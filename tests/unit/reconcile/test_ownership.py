"""Fields that pass from one manager to another."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.api import names
from reasoningpool.reconcile.ownership import disentangled, is_entangled, taken_over
from unit.reconcile.builders import stateful_set

MAIN, SCALE = names.FIELD_MANAGER, names.SCALE_FIELD_MANAGER


def entry(manager: str, fields: dict[str, Any], operation: str = "Apply", **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields, **more}


def live(*entries: dict[str, Any], kind: str = "StatefulSet") -> dict[str, Any]:
    return {**stateful_set(), "kind": kind, "metadata": {**stateful_set()["metadata"], "managedFields": list(entries)}}


def fields_of(entries: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {item["manager"]: item["fieldsV1"] for item in entries or ()}


NUMBER = {"f:spec": {"f:replicas": {}}}


def test_a_finished_creation_is_not_entangled() -> None:
    assert not is_entangled(live())
    assert not is_entangled(live(entry(SCALE, NUMBER), entry(MAIN, {"f:spec": {"f:template": {}}})))
    assert is_entangled(live(entry(SCALE, {"f:spec": {"f:replicas": {}, "f:template": {}}})))


def test_main_manager_takes_over_all_but_the_replicas_after_the_first_step() -> None:
    whole = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:replicas": {}, "f:template": {"f:x": {}}}}
    found = disentangled(live(entry(SCALE, whole)))
    rest = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:template": {"f:x": {}}}}
    assert fields_of(found) == {SCALE: NUMBER, MAIN: rest}
    assert not is_entangled(live(*found))


def test_what_others_own_elsewhere_stays_theirs() -> None:
    ports = {"f:ports": {'k:{"port":9000}': {"f:name": {}}}}
    theirs = {"f:metadata": {"f:labels": {"f:theirs": {}}}, "f:spec": {**ports, "f:type": {}}}
    status = entry("controller", {"f:spec": ports}, "Update", subresource="status")
    before = live(entry("kubectl", theirs, "Update"), entry(MAIN, {"f:spec": {"f:selector": {}}}), status)
    found = fields_of(taken_over(before, [("spec", "ports")]))
    assert found["kubectl"] == {"f:metadata": {"f:labels": {"f:theirs": {}}}, "f:spec": {"f:type": {}}}
    assert found[MAIN] == {"f:spec": {"f:selector": {}, **ports}}
    assert found["controller"] == {"f:spec": ports}


def test_manager_that_owns_nothing_is_left_out() -> None:
    before = live(entry("kubectl", {"f:spec": {"f:ports": {}}}, "Update"), entry(MAIN, {}), kind="Service")
    assert fields_of(taken_over(before, [("spec",)])) == {MAIN: {"f:spec": {"f:ports": {}}}}


def test_where_others_own_nothing_there_is_nothing_to_take_over() -> None:
    assert taken_over(live(entry(MAIN, {"f:spec": {"f:ports": {}}})), [("spec", "ports")]) is None
    assert taken_over(live(entry("autoscaler", NUMBER, "Update")), [("spec",)]) is None


FIELDS = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:spec", "f:replicas", "f:b"]), inner)
)


@given(ours=FIELDS, theirs=FIELDS, path=st.lists(st.sampled_from(["a", "spec", "b"]), max_size=3))
def test_nothing_that_was_owned_is_lost(ours: dict[str, Any], theirs: dict[str, Any], path: list[str]) -> None:
    before = [entry(MAIN, ours), entry("kubectl", theirs, "Update")]
    after = taken_over(live(*before), [tuple(path)])
    if after is not None:
        assert owned(after) >= owned(before)
        assert owned([item for item in after if item["manager"] == MAIN]) >= owned(before[:1])


def owned(entries: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """Paths of all fields, with those above them."""

    def paths(fields: dict[str, Any], above: tuple[str, ...]) -> set[tuple[str, ...]]:
        below = {path for name, inner in fields.items() for path in paths(inner, (*above, name))}
        return below | {(*above, name) for name in fields}

    return {path for item in entries for path in paths(item["fieldsV1"], ())}
