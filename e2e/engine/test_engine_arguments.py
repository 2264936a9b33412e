"""vLLM's own parser, asked about many argument lists at once."""

import json
import subprocess
from pathlib import Path

import pytest

from engine import arguments
from engine.arguments import ParseResult
from engine.environment import EngineEnvironment

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

GOOD = {
    "separate": ["m", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "64M"],
    "joined, underscores": ["m", "--max_num_seqs=8", "--kv_cache_memory_bytes=64M"],
    "abbreviated": ["m", "--max-num-se", "8"],
    "switched off": ["m", "--no-enable-prefix-caching"],
    "JSON": ["m", '--default-chat-template-kwargs={"enable_thinking": false}', "--reasoning-parser=qwen3"],
    "several values": ["m", "--served-model-name", "a", "b"],
    "speculative": ["m", '--speculative-config={"method": "ngram", "num_speculative_tokens": 3}'],
    "tools": ["m", "--enable-auto-tool-choice", "--tool-call-parser=hermes"],
}
BAD = {
    "unknown flag": (["m", "--no-such-flag", "3"], "unrecognized arguments: --no-such-flag 3"),
    "no number": (["m", "--max-num-seqs", "many"], "argument --max-num-seqs: invalid int value: 'many'"),
    "no such choice": (["m", "--kv-cache-dtype=fp9"], "argument --kv-cache-dtype: invalid choice: 'fp9'"),
    "broken JSON": (["m", "--default-chat-template-kwargs={"], "argument --default-chat-template-kwargs: invalid"),
    "half a size": (["m", "--kv-cache-memory-bytes=6.5M"], "Decimals are not allowed with binary suffixes"),
    "missing value": (["m", "--max-model-len"], "argument --max-model-len: expected one argument"),
    "tools without parser": (["m", "--enable-auto-tool-choice"], "requires --tool-call-parser"),
    "unknown tool parser": (["m", "--enable-auto-tool-choice", "--tool-call-parser=x"], "invalid tool call parser: x"),
    "unknown reasoning parser": (["m", "--reasoning-parser=x"], "Reasoning parser 'x' not found"),
    "help": (["m", "--help"], "would print its help or version"),
}


@pytest.fixture(scope="module")
def results(engine_environment: EngineEnvironment) -> dict[str, ParseResult]:
    lists = {**GOOD, **{name: bad for name, (bad, _) in BAD.items()}}
    parsed = arguments.parse(list(lists.values()), engine=engine_environment)
    return dict(zip(lists, parsed, strict=True))


@pytest.mark.parametrize("name", GOOD)
def test_good_list_is_accepted(name: str, results: dict[str, ParseResult]) -> None:
    assert results[name].error is None


@pytest.mark.parametrize("name", BAD)
def test_bad_list_is_refused_in_vllms_words(name: str, results: dict[str, ParseResult]) -> None:
    assert results[name].values is None
    assert BAD[name][1] in (results[name].error or "")


def test_values_are_the_parsed_ones(results: dict[str, ParseResult]) -> None:
    def value(name: str, option: str) -> object:
        return (results[name].values or {})[option]

    for name in ("separate", "joined, underscores"):
        assert value(name, "model_tag") == "m"
        assert value(name, "max_num_seqs") == 8
        assert value(name, "kv_cache_memory_bytes") == 64 * 2**20
    assert value("abbreviated", "max_num_seqs") == 8
    assert value("switched off", "enable_prefix_caching") is False
    assert value("JSON", "default_chat_template_kwargs") == {"enable_thinking": False}
    assert value("several values", "served_model_name") == ["a", "b"]


def test_parser_names_in_the_data_are_the_installed_ones(engine_environment: EngineEnvironment) -> None:
    script = Path(arguments.__file__).with_name("extract_parsers.py")
    done = subprocess.run([engine_environment.python, script], capture_output=True, text=True, check=True)
    installed = json.loads(done.stdout.splitlines()[-1])
    assert {kind: set(names) for kind, names in installed.items()} == {
        kind: arguments.parser_names(kind, "0.32") for kind in ("reasoning", "tool")
    }
