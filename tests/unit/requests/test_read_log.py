"""Request logs as servers and public traces write them, and everything that is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.requests.columns import Role
from reasoningpool.requests.errors import LogError
from reasoningpool.requests.log import RequestLog
from reasoningpool.requests.log_fields import TimeUnit
from unit.capacity.builders import read

TRACES = Path(__file__).parents[2] / "data" / "request_logs"


def span(log: RequestLog) -> float:
    """Seconds from the first to the last arrival."""
    assert log.seconds is not None
    return float(log.seconds[-1] - log.seconds[0])


def test_azure_trace_of_2023_is_read_as_it_is() -> None:
    found = read((TRACES / "azure_llm_2023_conv_head.csv").read_bytes())
    assert len(found) == found.runs == 300
    assert found.prompt is not None
    assert found.thinking is None
    assert (found.prompt[0], found.output[0]) == (374, 44)
    assert found.seconds is not None
    assert found.seconds[1] == pytest.approx(50.9951690 - 46.6805900)


def test_mooncake_trace_is_read_as_it_is_with_its_milliseconds() -> None:
    found = read((TRACES / "mooncake_conversation_head.jsonl").read_bytes())
    last = json.loads((TRACES / "mooncake_conversation_head.jsonl").read_text().splitlines()[-1])
    assert len(found) == 300
    assert found.prompt is not None
    assert (found.prompt[0], found.output[0]) == (6758, 500)
    assert span(found) == pytest.approx(last["timestamp"] / 1000)


def test_burstgpt_header_with_spaces_is_known() -> None:
    found = read("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API\n")
    assert found.prompt is not None
    assert (found.prompt[0], found.output[0]) == (472, 18)


def test_usage_object_of_an_openai_answer_tells_thinking_from_answer() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 25}}
    plain = {"prompt_tokens": 4, "completion_tokens": 7, "completion_tokens_details": None}
    found = read("\n".join(json.dumps({"id": "a", "usage": entry}) for entry in (usage, plain)))
    assert found.thinking is not None
    assert found.thinking.tolist() == [25, 0]
    assert found.output.tolist() == [30, 7]
    assert any("1 requests without a number of thinking tokens" in note for note in found.notes)


@pytest.mark.parametrize(
    "header",
    [
        "prompt_tokens,thinking_tokens,answer_tokens",
        "Prompt Tokens;ThinkingTokens;answer-tokens",
        "input_len\treasoning_tokens\tcontent_tokens",
    ],
)
def test_thinking_and_answer_columns_add_up(header: str) -> None:
    delimiter = next(mark for mark in ";\t," if mark in header)
    found = read(f"{header}\n{delimiter.join('235')}\n")
    assert found.thinking is not None
    assert (found.output[0], found.thinking[0]) == (8, 3)


def test_answer_beside_output_leaves_the_rest_to_thinking() -> None:
    found = read("output_tokens,answer_tokens\n10,4\n")
    assert found.thinking is not None
    assert found.thinking.tolist() == [6]
    assert found.prompt is None


def test_named_columns_win_over_known_names() -> None:
    found = read("output_tokens,mine,p\n1,20,3\n", columns={Role.OUTPUT: "mine", Role.PROMPT: "P"})
    assert found.prompt is not None
    assert (found.output[0], found.prompt[0]) == (20, 3)


def test_byte_order_mark_line_ends_of_windows_and_empty_lines_do_no_harm() -> None:
    assert read(b"\xef\xbb\xbfoutput_tokens,prompt_tokens\r\n1,2\r\n\r\n3,4\r\n").output.tolist() == [1, 3]


def test_gzip_is_known_by_its_bytes_and_may_have_several_members() -> None:
    body = gzip.compress(b"output_tokens\n5\n") + gzip.compress(b"6\n")
    assert read(body).output.tolist() == [5, 6]


def test_requests_are_put_in_order_of_arrival_from_second_zero() -> None:
    found = read("time,output_tokens\n2024-01-01T00:00:10Z,1\n2024-01-01T02:00:08+02:00,2\n2024-01-01 00:00:09,3\n")
    assert found.output.tolist() == [2, 3, 1]
    assert found.seconds is not None
    assert found.seconds.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("first", "second", "unit", "gap"),
    [
        ("100", "103", None, 3.0),
        ("1700000000", "1700000003", None, 3.0),
        ("1700000000000", "1700000003000", None, 3.0),
        ("1700000000000000", "1700000003000000", None, 3.0),
        ("1700000000000000000", "1700000003000000000", None, 3.0),
        ("100", "103", TimeUnit.MILLISECONDS, 0.003),
    ],
)
def test_numeric_times_are_in_the_unit_their_size_or_the_caller_tells(
    first: str, second: str, unit: TimeUnit | None, gap: float
) -> None:
    assert span(read(f"time,output_tokens\n{first},1\n{second},1\n", time_unit=unit)) == pytest.approx(gap)


def test_requests_without_output_are_left_out_and_counted() -> None:
    found = read("output_tokens\n0\n5\n0\n")
    assert found.output.tolist() == [5]
    assert any("2 requests that generated nothing" in note for note in found.notes)


def test_efforts_and_tiers_are_compared_in_lower_case() -> None:
    found = read("output_tokens,effort,tier\n5,High,Reasoning\n6,low,reasoning\n7,HIGH,chat\n")
    assert found.effort is not None
    assert found.tier is not None
    assert [found.effort.values[code] for code in found.effort.codes] == ["high", "low", "high"]
    assert found.tier.values == ("reasoning", "chat")


HEAD = "prompt_tokens,output_tokens\n1,2\n"


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("", None, "is empty"),
        ("\n\n", None, "is empty"),
        ("prompt_tokens,output_tokens\n", None, "only a header"),
        ("a,b\n1,2\n", 1, "has no column for output tokens; its columns are 'a', 'b'"),
        ("thinking_tokens\n1\n", 1, "answer tokens beside thinking tokens"),
        (HEAD + "3,-4\n", 3, "'-4': a number of tokens is not negative"),
        (HEAD + "3,nan\n", 3, "'nan', not a whole number"),
        (HEAD + "3,inf\n", 3, "'inf', not a whole number"),
        (HEAD + "3,4.5\n", 3, "'4.5', not a whole number"),
        (HEAD + "3,abc\n", 3, "column 'output_tokens' is 'abc', not a whole number"),
        (HEAD + "3,\n", 3, "'output_tokens' is empty"),
        (HEAD + "3\n", 3, "has 1 fields, the header has 2"),
        (HEAD + "3,4,5\n", 3, "has 3 fields"),
        (HEAD + "3,10000000\n", 3, "more than any model's context"),
        (HEAD + f"3,{'9' * 6000}\n", 3, "not a whole number"),
        (HEAD + f"3,{'9' * 1_100_000}\n", 3, "longer than 1 MiB"),
        (HEAD + '"3,4\n', 3, "is not valid CSV"),
        (HEAD + "\0,4\n", 3, "zero bytes"),
        (HEAD.encode() + b"\xff\xfe\x80", 3, "is not UTF-8 text"),
        ("prompt_tokens,thinking_tokens,output_tokens\n1,1,2\n1,5,2\n", 3, "more thinking tokens (5) than output"),
        ("time,output_tokens\nyesterday,2\n", 2, "neither a number nor a date"),
        ("time,output_tokens\n5,2\n2024-01-01,2\n", 3, "the times before it are numbers"),
        ("time,output_tokens\nnan,2\n", 2, "not an arrival time"),
        ("output_tokens\n0\n", None, "no request that generated a token"),
        ('{"output_tokens": 1, "prompt_tokens": 1}\n{"prompt_tokens": 1}\n', 2, "'output_tokens' is empty"),
        ('{"output_tokens": 1}\n{"output_tokens": "x"}\n', 2, "is 'x', not a whole number"),
        ('{"output_tokens": true}\n', 1, "is True"),
        ('{"output_tokens": NaN}\n', 1, "nan, not a whole number"),
        ('{"output_tokens": 1}\n{"output_tok\n', 2, "is not valid JSON"),
        ('{"output_tokens": 1}\n[1]\n', 2, "is not a JSON object"),
        ('[{"output_tokens": 1}]\n', 1, "is a JSON list"),
        ('{"a":' * 100_000, 1, "is not valid JSON"),
        ("output_tokens,effort\n" + "".join(f"1,e{n}\n" for n in range(70)), 66, "more than 64 different values"),
    ],
)
def test_malformed_log_is_one_line_with_its_place(body: str | bytes, line: int | None, words: str) -> None:
    with pytest.raises(LogError) as caught:
        read(body)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line == line


def test_stated_column_that_is_not_there_is_named() -> None:
    with pytest.raises(LogError, match="has no column 'mine'"):
        read(HEAD, columns={Role.OUTPUT: "mine"})


def test_gzip_that_ends_early_tells_the_line_it_got_to() -> None:
    body = gzip.compress(b"output_tokens\n" + b"".join(b"%d\n" % (n * 7919 % 9973) for n in range(20_000)))
    with pytest.raises(LogError, match="cut off") as caught:
        read(body[: len(body) // 2])
    assert caught.value.line is not None
    assert 5_000 < caught.value.line < 15_000


def test_damaged_gzip_is_reported() -> None:
    body = bytearray(gzip.compress(b"output_tokens\n5\n6\n"))
    body[-8] ^= 1  # of the checksum
    with pytest.raises(LogError, match="damaged"):
        read(bytes(body))


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_log_or_an_error_with_words(body: bytes) -> None:
    try:
        found = read(body)
    except LogError as error:
        assert str(error)
    else:
        assert (found.output > 0).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4_194_304), st.integers(0, 4_194_304)), min_size=1, max_size=30))
def test_csv_and_jsonl_of_the_same_requests_are_the_same_log(rows: list[tuple[int, int]]) -> None:
    rows.append((1, 1))
    as_csv = "prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in rows)
    as_json = "".join(json.dumps({"output_tokens": o, "prompt_tokens": p}) + "\n" for p, o in rows)
    one, other = read(as_csv), read(as_json)
    assert one.output.tolist() == other.output.tolist() == [o for _, o in rows if o]
    assert one.prompt is not None
    assert other.prompt is not None
    assert one.prompt.tolist() == other.prompt.tolist() == [p for p, o in rows if o]
