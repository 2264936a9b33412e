"""What a response tells as it passes: when the answer begins, how it ends, what it used.

A chunk costs one search for a few bytes until the answer begins, and nothing but a reference after that.
"""

from __future__ import annotations

import re
from collections import deque

from reasoningpool_runtime.apis import Api
from reasoningpool_runtime.engine import Usage

# vLLM writes compact JSON, and quotes inside of text are escaped, so that no text can look like these.
# A text of white space only is not yet an answer.
_TEXT = rb'"(?:\\[nrt]|\s)*(?:[^"\\\s]|\\[^nrt])'
_ANSWERS = {
    Api.CHAT: re.compile(rb'"content":\s*' + _TEXT + rb'|"tool_calls":\s*\[\s*\{'),
    Api.COMPLETIONS: re.compile(rb'"text":\s*' + _TEXT),
    Api.RESPONSES: re.compile(
        rb'"response\.(?:output_text|function_call_arguments)\.delta"|"type":\s*"(?:output_text|function_call)"'
    ),
    Api.MESSAGES: re.compile(rb'"(?:text_delta|input_json_delta|tool_use)"|"type":\s*"text",\s*"text":\s*' + _TEXT),
}
_CUT = re.compile(rb'"(?:finish_reason|stop_reason)":\s*"(?:length|max_tokens)"|"reason":\s*"max_output_tokens"')
_NUMBERS = {
    name: re.compile(rb'"' + name + rb'":\s*(\d+)') for name in (b"input_tokens", b"output_tokens", b"reasoning_tokens")
}
_TAIL_CHUNKS = 24  # the last chunks of up to 16 choices, usage and [DONE]


class ResponseWatch:
    """Sees the chunks of one response in order; `now` is in seconds of any clock."""

    def __init__(self, api: Api, *, answer_is_text: bool = True) -> None:
        self._api = api
        self._answer = _ANSWERS[api] if answer_is_text else None
        self._tail: deque[bytes] = deque(maxlen=_TAIL_CHUNKS)
        self.first_answer_at: float | None = None
        self.answered = False

    def chunk(self, body: bytes, now: float) -> None:
        """A piece of the response's body."""
        self._tail.append(body)
        if not self.answered and self._answer is not None and self._answer.search(body):
            self.answered = True
            self.first_answer_at = now

    def cut_outputs(self) -> int:
        """How many outputs were cut by their token limit."""
        found = len(_CUT.findall(b"".join(self._tail)))
        return min(found, 1) if self._api is Api.RESPONSES else found

    def usage(self) -> Usage | None:
        """The usage in the response's own text, for APIs where vLLM leaves none for middleware."""
        text = b"".join(self._tail)
        numbers = {name: found[-1] for name, pattern in _NUMBERS.items() if (found := pattern.findall(text))}
        if b"output_tokens" not in numbers:
            return None
        thinking = numbers.get(b"reasoning_tokens")
        return Usage(
            int(numbers.get(b"input_tokens", 0)),
            int(numbers[b"output_tokens"]),
            None if thinking is None else int(thinking),
        )
