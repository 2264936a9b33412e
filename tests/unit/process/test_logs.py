"""What a log line looks like."""

import json
import logging
import sys

from reasoningpool.process.logs import JsonFormatter, TextFormatter


def record(**extra):
    made = logging.LogRecord("reasoningpool.x", logging.WARNING, "f.py", 1, "lost %d", (3,), None)
    made.__dict__.update(extra)
    return made


def test_json_lines_carry_the_pool():
    line = json.loads(JsonFormatter().format(record(pool_namespace="llm", pool="p")))
    assert line["level"] == "warning"
    assert line["message"] == "lost 3"
    assert (line["pool_namespace"], line["pool"]) == ("llm", "p")
    assert line["time"].endswith("+00:00")


def test_json_lines_stay_one_line_with_a_traceback():
    try:
        raise ValueError("first\nsecond")  # noqa: TRY301 - the traceback is the subject
    except ValueError:
        made = record(exc_info=sys.exc_info())
    text = JsonFormatter().format(made)
    assert "\n" not in text
    assert "ValueError" in json.loads(text)["exception"]


def test_text_lines_name_the_pool_where_there_is_one():
    assert "[llm/p] lost 3" in TextFormatter().format(record(pool_namespace="llm", pool="p"))
    assert "[" not in TextFormatter().format(record())
