"""Which arguments may be shown with their value, in status and events that more people read than pods."""

from __future__ import annotations

from typing import Final

from reasoningpool.vllm.argument_policy import OWNED
from reasoningpool.vllm.flag_table import look_up
from reasoningpool.vllm.permitted_arguments import FREE

# Free of effect on the plan, but an address with a password, a header or a key may stand in them.
_TELLING: Final = frozenset(
    {
        "--allowed-headers",
        "--custom-histogram-buckets",
        "--fingerprint-value",
        "--log-config-file",
        "--logging-config",
        "--model-loader-extra-config",
        "--otlp-traces-endpoint",
        "--override-generation-config",
        "--structured-outputs-config",
        "--tokenizer",
    }
)


def argument_name(argument: str) -> str:
    """The flag in an argument without its value, in the user's spelling.

    >>> argument_name("--seed=1"), argument_name("-qfp8"), argument_name("-xsecret")
    ('--seed', '-q', '-x')
    """
    spelling = argument.partition("=")[0]
    if spelling.startswith("--"):
        return spelling
    match = look_up(spelling)
    return spelling if match.flags and match.attached is None else spelling[:2]


def shows_value(argument: str) -> bool:
    """Whether the value of this flag holds no secret: a known flag that is the operator's, or free of content.

    >>> shows_value("--max-num-seqs"), shows_value("--seed"), shows_value("--flag-of-a-plugin")
    (True, True, False)
    """
    flags = look_up(argument_name(argument)).flags
    return len(flags) == 1 and (flags[0].name in OWNED or flags[0].name in FREE - _TELLING)
