"""Which answers are worth another try, and what of them a status should say."""

import pytest

from reasoningpool.adapters.errors import (
    MAX_MESSAGE_LENGTH,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    NotInstalled,
    Permanent,
    Transient,
    classify,
)


def status(message="", reason="", causes=()):
    return {"kind": "Status", "message": message, "reason": reason, "details": {"causes": list(causes)}}


TYPED_PATCH = (
    "failed to create typed patch object (llm/a; apps/v1, Kind=StatefulSet): .spec.bogus: field not declared in schema"
)


@pytest.mark.field_report("K18")
@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (400, status("name differs", "BadRequest"), Permanent),
        (422, status("is invalid", "Invalid"), Permanent),
        (413, status("too large", "RequestEntityTooLarge"), Permanent),
        (500, status(TYPED_PATCH), Permanent),
        (500, status("etcdserver: request timed out"), Transient),
        (403, status("cannot patch resource", "Forbidden"), Forbidden),
        (404, status('statefulsets.apps "a" not found', "NotFound"), NotFound),
        (404, status("the server could not find the requested resource", "NotFound"), NotInstalled),
        (404, None, NotInstalled),
        (409, status("the object has been modified", "Conflict"), Conflict),
        (410, status("too old resource version", "Expired"), NotFound),
        (401, status("Unauthorized", "Unauthorized"), Transient),
        (429, status("too many requests", "TooManyRequests"), Transient),
        (503, None, Transient),
        (504, status("timeout", "Timeout"), Transient),
    ],
)
def test_status_code_decides_whether_to_retry(code, body, kind):
    error = classify(code, body, "404 page not found")
    assert type(error) is kind
    assert error.status == code


def test_fields_are_named_and_value_dumps_are_cut_out():
    dump = "Invalid value: []core.PersistentVolumeClaim{core.PersistentVolumeClaim{TypeMeta:v1}}: field is immutable"
    error = classify(
        422,
        status(
            "StatefulSet.apps is invalid",
            "Invalid",
            [{"reason": "FieldValueInvalid", "field": "spec.volumeClaimTemplates", "message": dump}],
        ),
    )
    assert error.message == "spec.volumeClaimTemplates: field is immutable"
    assert isinstance(error, Permanent)
    assert error.immutable


def test_older_servers_name_no_field_of_an_immutable_set():
    text = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals' are forbidden"
    error = classify(422, status("is invalid", "Invalid", [{"field": "spec", "message": text}]))
    assert isinstance(error, Permanent)
    assert error.immutable


def test_other_invalid_fields_are_not_immutable_ones():
    error = classify(422, status("is invalid", "Invalid", [{"field": "spec.replicas", "message": "Invalid value: -1"}]))
    assert isinstance(error, Permanent)
    assert not error.immutable


def test_messages_fit_into_a_status():
    causes = [{"field": f"spec.f{index}", "message": "x" * 900} for index in range(9)]
    error = classify(422, status("y" * 9000, "Invalid", causes))
    assert len(error.message) <= MAX_MESSAGE_LENGTH
    assert "and 6 more" in error.message
    assert len(classify(500, None, "z" * 9000).message) <= MAX_MESSAGE_LENGTH
    assert "\n" not in classify(500, None, "several\nlines").message


def test_field_conflict_differs_from_a_changed_object():
    taken = classify(
        409,
        status(
            "Apply failed with 1 conflict",
            "Conflict",
            [{"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": 'conflict with "kubectl"'}],
        ),
    )
    changed = classify(409, status("the object has been modified", "Conflict"))
    assert isinstance(taken, Conflict)
    assert isinstance(changed, Conflict)
    assert [cause.field for cause in taken.field_managers] == [".spec.replicas"]
    assert changed.field_managers == ()
    assert not changed.already_exists


def test_a_namespace_on_its_way_out_is_not_a_missing_permission():
    error = classify(403, status("forbidden", "Forbidden", [{"reason": "NamespaceTerminating", "message": "m"}]))
    assert isinstance(error, Forbidden)
    assert error.namespace_terminating


def test_a_retry_time_is_kept():
    assert classify(429, status("slow down"), retry_after=3.0).retry_after == 3.0
    assert issubclass(Transient, KubeError)
