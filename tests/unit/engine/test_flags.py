"""The flags and parser names of vLLM 0.33, as data."""

import re

import pytest

from engine import arguments, extract_flags

HELP = """\
usage: vllm serve [model_tag] [options]

options:
  --max-num-seqs MAX_NUM_SEQS
                        Maximum number of sequences, see --other.
                        - one  two
  --enable-x, --disable-x
                        Switch. (default: None)
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
                        Groups.
  --format {a,b,c}, -f {a,b,c}
                        One of three.
  --names NAMES [NAMES ...]
                        Several.
  --token [TOKEN]       May be left out.
  --mode ['auto', 'x']  Any string.
  --grpc                Short name, help on the same line.
"""


def test_each_kind_of_option_is_read() -> None:
    options = {option["spellings"][0]["name"]: option for option in extract_flags.extract(HELP)}
    assert list(options) == [
        "--max-num-seqs",
        "--enable-x",
        "--tensor-parallel-size",
        "--format",
        "--names",
        "--token",
        "--mode",
        "--grpc",
    ]
    assert options["--max-num-seqs"]["spellings"] == [{"name": "--max-num-seqs", "value": True}]
    assert [spelling["name"] for spelling in options["--enable-x"]["spellings"]] == ["--enable-x", "--disable-x"]
    assert not any(spelling["value"] for spelling in options["--enable-x"]["spellings"])
    assert options["--tensor-parallel-size"]["short"] == ["-tp"]
    assert options["--format"]["choices"] == ["a", "b", "c"]
    assert options["--names"]["many"]
    assert options["--token"]["optional"]
    assert options["--mode"]["suggestions"] == ["auto", "x"]
    assert not options["--mode"]["choices"]
    assert options["--grpc"]["spellings"] == [{"name": "--grpc", "value": False}]


def test_known_flags_have_every_spelling() -> None:
    flags = arguments.known_flags_033()
    assert len(flags) == 411
    assert all(re.fullmatch(r"--[a-z0-9][a-z0-9-]*", name) for name in flags)
    assert flags["--disable-prefix-caching"].canonical == flags["--enable-prefix-caching"].canonical
    assert flags["--no-data-parallel-external-lb"].canonical == "--data-parallel-external-lb"
    assert flags["--tensor-parallel-size"].short == ("-tp",)
    assert flags["--served-model-name"].many
    # Four that 0.33 brought.
    assert {"--monokernel", "--reasoning-effort-map", "--sleep-mode-backend", "--watchdog-config"} <= flags.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--max-num-seqs", True),
        ("--max-model-len", True),
        ("--kv-cache-memory-bytes", True),
        ("--default-chat-template-kwargs", True),
        ("--shutdown-timeout", True),
        ("--enable-prefix-caching", False),
        ("--enforce-eager", False),
        ("--enable-auto-tool-choice", False),
    ],
)
def test_flags_say_whether_they_want_a_value(name: str, value: bool) -> None:  # noqa: FBT001
    assert arguments.known_flags_033()[name].value is value


def test_parser_names_of_033_are_those_of_032_and_four_more() -> None:
    new = {"beam", "muse", "musespark1x", "step5"}
    for kind, count in (("reasoning", 42), ("tool", 58)):
        later, earlier = arguments.parser_names(kind, "0.33"), arguments.parser_names(kind, "0.32")
        assert len(later) == count
        assert later - earlier == new
        assert earlier < later


def test_tool_parsers_are_the_choices_of_their_flag() -> None:
    assert arguments.parser_names("tool", "0.33") == set(arguments.known_flags_033()["--tool-call-parser"].choices)
