"""Words of tenants' engines: looked at within bounds, understood as before, quoted without secrets."""

from __future__ import annotations

import re
from re import _constants, _parser  # type: ignore[attr-defined]  # what the expressions consist of

import pytest

from reasoningpool.adapters import engine_metrics, errors
from reasoningpool.objects import redaction
from reasoningpool.planning.diagnosis import pod_creation, pods, words
from reasoningpool.planning.diagnosis.pod_creation import creation_failure, explain_missing_pod
from reasoningpool.planning.diagnosis.pods import diagnose
from reasoningpool.planning.diagnosis.words import last_error, quoted, telling_line
from reasoningpool.planning.live import LivePod
from reasoningpool.planning.observations import ContainerLog
from support.world import pod

HUB = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


def expressions(module) -> list[re.Pattern[str]]:
    found = list(vars(module).values()) + [
        entry for value in vars(module).values() if isinstance(value, tuple) for entry in value
    ]
    found += [part for entry in found if isinstance(entry, tuple) for part in entry]
    return [entry for entry in found if isinstance(entry, re.Pattern)]


def goes_back(items, *, last: bool) -> list[str]:
    """Repeats without a bound that are not the end of the expression: what they passed may be passed again."""
    found = []
    for number, (kind, value) in enumerate(items):
        ends = last and all(
            _parser.SubPattern(items.state, [later]).getwidth()[0] == 0 for later in list(items)[number + 1 :]
        )
        if kind in {_constants.MAX_REPEAT, _constants.MIN_REPEAT}:
            _, most, inner = value
            if most is _constants.MAXREPEAT and not ends:
                found.append(str(inner))
            found += goes_back(inner, last=False)
        elif kind is _constants.SUBPATTERN:
            found += goes_back(value[-1], last=ends)
        elif kind is _constants.BRANCH:
            for branch in value[1]:
                found += goes_back(branch, last=ends)
    return found


@pytest.mark.parametrize("module", [words, pods, pod_creation, redaction, errors], ids=lambda module: module.__name__)
def test_no_expression_for_words_of_others_can_take_long(module) -> None:
    for expression in expressions(module):
        assert goes_back(_parser.parse(expression.pattern, expression.flags), last=True) == [], expression.pattern


def test_the_check_of_expressions_knows_those_that_take_long() -> None:
    assert len(expressions(redaction)) >= 5
    assert len(expressions(pod_creation)) >= 10
    for slow in (r"kv.cache.dtype.*not supported", r"[a-z]+ usage", r"(a*)b", r"(?:a|b+c)d", r"(a+)+"):
        assert goes_back(_parser.parse(slow), last=True)


class Counted(str):
    """A line that counts the characters that are searched in it."""

    __slots__ = ()
    work = 0

    def find(self, part, at=0):
        end = super().find(part, at)
        Counted.work += (len(self) if end < 0 else end + len(part)) - at
        return end


@pytest.mark.parametrize("unit", ["kv cache dtype ", "parser '", "invalid ", "Access to model ", "Error ", "\x1b["])
def test_work_on_a_line_grows_no_faster_than_the_line(unit) -> None:
    def work(length: int) -> int:
        Counted.work = 0
        line = Counted((unit * length)[:length])
        assert not any(saying.is_in(line) for saying in words._SAYINGS)
        return Counted.work

    assert work(20_000) <= 2 * work(10_000) + 10_000


@pytest.mark.parametrize("mark", ["\n", "\r", "\x0b", "\u2028", "x\n", " \n"])
def test_only_so_much_of_a_log_is_looked_at(mark) -> None:
    lines = words._lines("torch.OutOfMemoryError: " + mark * words.MAX_TEXT * 2 + "\nlast" + "y" * 10_000)
    assert len(lines) <= words.MAX_LINES
    assert max(map(len, lines)) <= words.MAX_LINE
    assert lines[-1].startswith("lasty")


def test_words_beyond_the_bound_of_a_line_are_not_searched() -> None:
    assert telling_line("x" * words.MAX_LINE + " CUDA out of memory") is None
    assert telling_line("x" * (words.MAX_LINE - 30) + " CUDA out of memory") is not None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ValueError: kv_cache_dtype fp8_e5m2 is not supported", "DTypeUnsupported"),
        ("KV-cache-dtype fp8 not supported", "DTypeUnsupported"),
        ("Access to model meta-llama/Llama-3 is restricted", "ModelAccessDenied"),
        ("403 Client Error: Forbidden", "ModelAccessDenied"),
        ("argument --seed: invalid int value: 'x'", "BadArgument"),
        ("type X is not supported for this GPU", "DTypeUnsupported"),
    ],
)
def test_words_that_stand_apart_are_understood(line, reason) -> None:
    found = telling_line(line)
    assert found is not None
    assert found.reason == reason


@pytest.mark.parametrize("line", ["not supported: kv_cache_dtype", "' not found, parser 'x", "value: invalid "])
def test_words_in_another_order_mean_nothing(line) -> None:
    assert telling_line(line) is None


def test_error_is_found_only_where_a_colon_follows() -> None:
    assert last_error("RuntimeError: a\nTraceback without\nplain") == "RuntimeError: a"
    assert last_error("x: Error\nplain") == "plain"


SECRET_WORDS = f"ValueError: Invalid user token: {HUB} for https://me:hunter2@hub.example/"


def leaving(message: str) -> LivePod:
    return LivePod(pod("p-0", {}, "r", ready=False, state={"terminated": {"exitCode": 1, "message": message}}))


def waiting(reason: str) -> LivePod:
    return LivePod(pod("p-0", {}, "r", ready=False, state={"waiting": {"reason": reason, "message": SECRET_WORDS}}))


@pytest.mark.parametrize(
    "found",
    [
        lambda: diagnose(leaving(SECRET_WORDS), None),
        lambda: diagnose(leaving(f"BoomError: {SECRET_WORDS}"), None),
        lambda: diagnose(leaving(""), ContainerLog(container="engine", previous=False, text=f"a\n{SECRET_WORDS}")),
        lambda: diagnose(waiting("ImagePullBackOff"), None),
        lambda: diagnose(waiting("CreateContainerConfigError"), None),
        lambda: quoted(SECRET_WORDS),
        lambda: explain_missing_pod([creation_failure(f"Pod p-0 in StatefulSet p failed error: {SECRET_WORDS}")], ()),
        lambda: errors.classify(422, {"message": SECRET_WORDS}),
        lambda: errors.classify(
            422, {"details": {"causes": [{"field": "spec.x", "message": f"Invalid value: {SECRET_WORDS}"}]}}
        ),
    ],
)
def test_secrets_are_quoted_nowhere(found) -> None:
    text = str(getattr(said := found(), "message", said))
    assert "[redacted]" in text
    assert HUB not in text
    assert "hunter2" not in text


def test_long_refusals_are_read_within_bounds() -> None:
    word = "Invalid value: "
    told = errors.classify(422, {"details": {"causes": [{"field": "spec.x", "message": word * 100_000}]}})
    assert len(told.message) <= errors.MAX_MESSAGE_LENGTH
    assert len(creation_failure("usage " * 100_000).message) <= pod_creation.MAX_MESSAGE


def test_real_lines_of_the_metric_match_without_a_way_back() -> None:
    """The one repeat inside its expression is of alternatives that have no character in common."""
    assert r'(?:[^"\\]|\\.)*' in engine_metrics._LABEL.pattern
