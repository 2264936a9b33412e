"""Which column of a request log holds what, by the names that public traces and servers use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reasoningpool.requests.errors import CapacityError


class Role(StrEnum):
    """What a column may hold."""

    PROMPT = "prompt"
    THINKING = "thinking"
    ANSWER = "answer"
    OUTPUT = "output"
    TIME = "time"
    EFFORT = "effort"
    TIER = "tier"


# Compared without case, spaces and punctuation. A dot leads into a JSON object.
_NAMES: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.PROMPT: (
        "prompt_tokens", "input_tokens", "context_tokens", "request_tokens", "num_prompt_tokens", "num_input_tokens",
        "num_prefill_tokens", "prompt_token_count", "prompt_length", "input_length", "prompt_len", "input_len",
        "usage.prompt_tokens", "usage.input_tokens",
    ),
    Role.THINKING: (
        "thinking_tokens", "reasoning_tokens", "thought_tokens", "thoughts_token_count", "num_reasoning_tokens",
        "thinking_length", "reasoning_length", "usage.completion_tokens_details.reasoning_tokens",
        "usage.output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens",
    ),
    Role.ANSWER: ("answer_tokens", "content_tokens", "final_tokens", "visible_tokens", "answer_length"),
    Role.OUTPUT: (
        "output_tokens", "completion_tokens", "generated_tokens", "generation_tokens", "response_tokens",
        "num_output_tokens", "num_generation_tokens", "num_decode_tokens", "output_length", "response_length",
        "output_len", "usage.completion_tokens", "usage.output_tokens",
    ),
    Role.TIME: (
        "timestamp", "arrival_time", "arrival_timestamp", "arrived_at", "start_time", "request_time", "time",
        "created", "created_at",
    ),
    Role.EFFORT: ("effort", "reasoning_effort"),
    Role.TIER: ("tier",),
}  # fmt: skip
_IGNORED: Final = re.compile(r"[^a-z0-9.]")


def folded(name: str) -> str:
    """A column name as it is compared: `Context Tokens`, `context_tokens` and `ContextTokens` are one."""
    return _IGNORED.sub("", name.lower())


_ROLE_OF: Final = {folded(name): (role, rank) for role, names in _NAMES.items() for rank, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Columns:
    """The column of each role that a log has."""

    of: Mapping[Role, str]

    def __contains__(self, role: Role) -> bool:
        return role in self.of

    @property
    def words(self) -> str:
        """The choice in words."""
        return ", ".join(f"{role} from {name!r}" for role, name in self.of.items())


def choose(names: Iterable[str], stated: Mapping[Role, str]) -> Columns:
    """The columns to read: the stated ones, then the known names, the more usual of two first.

    Raises:
        CapacityError: a stated column is not there, or no column tells how much requests generate.
    """
    present = list(dict.fromkeys(names))
    found: dict[Role, str] = {}
    for role, name in stated.items():
        match = next((p for p in present if p == name), None) or next(
            (p for p in present if folded(p) == folded(name)), None
        )
        if match is None:
            raise CapacityError(f"has no column {name!r}; {_listed(present)}")
        found[role] = match
    best: dict[Role, int] = {}
    for name in present:
        known = _ROLE_OF.get(folded(name))
        if known is None or known[0] in stated or name in stated.values():
            continue
        role, rank = known
        if rank < best.get(role, len(_ROLE_OF)):
            best[role], found[role] = rank, name
    if Role.OUTPUT not in found and Role.ANSWER not in found:
        what = "answer tokens beside thinking tokens" if Role.THINKING in found else "output tokens"
        raise CapacityError(f"has no column for {what}; {_listed(present)}; name it with --column output=NAME")
    return Columns({role: found[role] for role in Role if role in found})


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:12])
    return f"its columns are {shown}{', ...' if len(names) > 12 else ''}" if names else "it has no columns at all"
