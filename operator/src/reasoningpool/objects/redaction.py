"""Secrets in words of others: logs, termination messages and refusals are quoted where many people may read."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "[redacted]"

# Every repeat is bounded or the end of its expression, so that it never goes back over what it has passed: time is
# linear in the text.
_NAMES: Final = (
    r"pass(?:word|wd|phrase)|secrets?|credentials?|tokens?|api[_-]?key|access[_-]?key|private[_-]?key|key"
    r"|signature|sig|auth"
)
_NAMED: Final = re.compile(
    # --api-key VALUE, TOKEN=VALUE, "password": "VALUE"; `key: value` in prose is left alone.
    rf"(?P<name>--(?:[a-z0-9]{{1,20}}-){{0,3}}(?:api-key|token|password|secret)\s{{1,4}}"
    rf"|(?:{_NAMES})[\"']?\s?=\s?[\"'\[]{{0,3}}"
    rf"|(?:pass(?:word|wd|phrase)|secret|credentials?|token|api[_-]?key|access[_-]?key|private[_-]?key)"
    rf"[\"']?\s?:\s?[\"'\[]{{0,3}})(?P<value>[^\s\"'&,;)\]}}]+)",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(
    r"(?P<name>\bbearer\s{1,4}|\bauthorization[\"']?\s?[:=]\s?[\"'\[]{0,3}(?:(?:basic|bearer|token|digest)\s{1,4})?)"
    r"(?P<value>[^\s\"',;)\]}]+)",
    re.IGNORECASE,
)
_IN_URL: Final = re.compile(r"(?P<scheme>://)[^\s/?#\"'<>]{1,512}@")
# Tokens that say by their beginning what they are: Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS, NVIDIA, JWT.
_KNOWN: Final = re.compile(
    r"\b(?:(?:hf_|api_org_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|nvapi-)[A-Za-z0-9_-]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|eyJ[A-Za-z0-9_.-]{16,})"
)
_RUN: Final = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")
_HEX: Final = re.compile(r"[0-9a-fA-F]{32,}")
_PIECES: Final = re.compile(r"[/_-]")
# Content addresses are published: images and files are told apart by them.
_DIGEST: Final = re.compile(r"sha256:\Z")
_RANDOM_PIECE: Final = 20
_PLAIN_VALUES: Final = frozenset({"none", "null", "true", "false", "auto", "***", MASK[:-1], MASK[1:-1]})


def redacted(text: str) -> str:
    """The text with what looks like a secret masked; what is masked once stays as it is.

    Masked are tokens of known makers, values of parameters and variables named like secrets, what follows `Bearer`
    and `Authorization`, user names and passwords in URLs, and long base64 and hexadecimal runs (but `sha256:` digests).
    """
    text = _IN_URL.sub(rf"\g<scheme>{MASK}@", text)
    text = _KNOWN.sub(MASK, text)
    text = _AUTHORIZATION.sub(_masked_value, text)
    text = _NAMED.sub(_masked_value, text)
    return _RUN.sub(_masked_run, text)


def _masked_value(found: re.Match[str]) -> str:
    value = found["value"]
    plain = value.lower().rstrip(".:") in _PLAIN_VALUES or _is_number(value)
    return found[0] if plain else found["name"] + MASK


def _is_number(text: str) -> bool:
    return len(text) <= 12 and text.replace(".", "").rstrip(".").isdecimal()


def _masked_run(found: re.Match[str]) -> str:
    run = found[0]
    if _DIGEST.search(found.string, max(0, found.start() - 7), found.start()):
        return run
    return MASK if _is_random(run) or _HEX.search(run) else run


def _is_random(run: str) -> bool:
    """Whether a run of base64's characters is no path and no name: a long piece with both cases and digits."""
    longest = max(_PIECES.split(run.rstrip("=")), key=len)
    kinds = (str.isupper, str.islower, str.isdigit)
    return len(longest) >= _RANDOM_PIECE and all(any(map(kind, longest)) for kind in kinds)
