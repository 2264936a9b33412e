"""Further arguments are read as vLLM's parser reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.api.findings import Finding
from reasoningpool.vllm.argument_policy import OWNED, REFUSED, REFUSED_BESIDE
from reasoningpool.vllm.extra_arguments import check_extra_arguments
from reasoningpool.vllm.flag_table import Takes, look_up, spellings
from reasoningpool.vllm.permitted_arguments import FREE, ONLY_KEYS, OWNED_KEYS, REFUSED_VALUES, WARNED, WARNED_BESIDE

VERSION = (0, 33, 0)


def checked(args: Sequence[str]) -> tuple[Finding, ...]:
    return check_extra_arguments(args, VERSION, path="args")


def messages(*args: str, scaling: bool = False) -> list[str]:
    found = check_extra_arguments(args, VERSION, path="args", scaling=scaling)
    return [finding.message for finding in found if finding.is_error]


def doubts(*args: str) -> list[str]:
    return [finding.message for finding in checked(args) if not finding.is_error]


def paths(*args: str) -> list[str]:
    return [finding.path for finding in checked(args) if finding.is_error]


ALLOWED = [
    ("--seed=1",),
    ("--seed", "1"),
    ("--seed", "-1"),
    ("--stream-interval=4", "--async-scheduling"),
    ("--enable-lora", "--lora-modules", "a=/x", "b=/y", "--max-loras=2"),
    ("--compilation-config.mode", "3", "--compilation-config.cudagraph_mode=FULL"),
    ("-cc", '{"mode": 3}'),
    ("-O3",),
    ("--override-generation-config", '{"temperature": 0.6}'),
    ("--kv-transfer-config", '{"kv_connector":"X"}'),
    ("--dtype", "half"),
    ("--enable-log-requests",),
    ("--no-enable-chunked-prefill",),
    ("--flag-of-a-plugin", "value", "--other-plugin=1"),
    ("--otlp-traces-endpoint=http://$(NODE_IP):4317",),
    ("--disable-log-stats",),
    (),
]


@pytest.mark.parametrize("args", ALLOWED, ids=" ".join)
def test_what_the_operator_does_not_own_is_let_through(args: tuple[str, ...]) -> None:
    assert messages(*args) == []


REFUSALS = [
    (("--max-num-seqs=8",), "maxNumSeqs"),
    (("--max-num-seqs", "8"), "maxNumSeqs"),
    (("--max_num_seqs", "8"), "maxNumSeqs"),
    (("--max-num_seq=8",), "maxNumSeqs"),
    (("--device-memory-utilization=0.5",), "engine.memoryUtilizationPercent"),
    (("--gpu-memory", "0.5"), "engine.memoryUtilizationPercent"),
    (("--kv-cache-memory", "1G"), "engine.kvCacheMemory"),
    (("--no-enable-prefix-caching",), "engine.prefixCaching"),
    (("--disable-prefix-caching",), "engine.prefixCaching"),
    (("--no-enforce-eager",), "engine.enforceEager"),
    (("-tp", "2"), "accelerator.perReplica"),
    (("-tp=2",), "accelerator.perReplica"),
    (("-t", "2"), "accelerator.perReplica"),
    (("-q", "awq"), "model.quantization"),
    (("-qawq",), "model.quantization"),
    (("-sc", "{}"), "speculative"),
    (("-sc.method", "ngram"), "speculative"),
    (("--speculative_config.method=ngram",), "speculative"),
    (("--spec-method", "ngram"), "speculative"),
    (("--model", "x"), "model.id"),
    (("Qwen/Qwen3-8B",), "model.id"),
    (("--served-model-name", "a", "b"), "model.servedName"),
    (("--reasoning-parser=qwen3",), "model.parsers.reasoning"),
    (("--structured-outputs-config", '{"reasoning_parser":"x"}'), "model.parsers.reasoning"),
    (("--structured-outputs-config.reasoning_parser", "x"), "model.parsers.reasoning"),
    (("--shutdown-timeout=5",), "budgets"),
    (("--default-chat-template-kwargs", '{"enable_thinking":true}'), "workload"),
    (("--api-key", "k1", "k2"), "engine.apiKeySecretRef"),
    (("--hf-token=x",), "tokenSecretRef"),
    (("--config", "/etc/vllm.yaml"), "a file can set any argument"),
    (("--data-parallel-size", "2"), "replicas"),
    (("-dp", "2"), "replicas"),
    (("-dcp", "2"), "tensor parallelism only"),
    (("--num-gpu-blocks-override=10",), "engine.kvCacheMemory"),
    (("--ssl-certfile=/x",), "TLS"),
    (("--uds=/x",), "TCP port"),
    (("--dtype=float32",), "16-bit"),
    (("--help",), "print its help"),
    (("-h",), "print its help"),
    (("--version",), "print its version"),
    (("-v",), "print its version"),
    (("--task", "embed"), "generates text"),
    (("--task=generate",), "generates text"),
    (("--runner", "pooling"), "generates text"),
    (("--convert=embed",), "generates text"),
    (("--speculative_model", "x"), "speculative.model"),
    (("--hf-overrides", '{"num_hidden_layers": 1}'), "model.configJSON"),
    (("--hf-overrides", '{"rope_parameters": {}, "head_dim": 64}'), "model.configJSON"),
    (("--hf_overrides.text_config.num_hidden_layers", "1"), "model.configJSON"),
    (("--hf-over=$(OVERRIDES)",), "model.configJSON"),
    (("--hf-overrides", "[]"), "model.configJSON"),
    (("--hf-config-path=/x",), "model.configJSON"),
    (("--quantization-config", "{}"), "model.quantization"),
    (("--load-format=bitsandbytes",), "model.quantization"),
    (("--grpc-port=1",), "API key"),
    (("--distributed-executor-backend", "ray"), "one pod"),
]


@pytest.mark.parametrize(("args", "words"), REFUSALS, ids=[" ".join(args) for args, _ in REFUSALS])
def test_a_collision_is_refused_with_the_field_to_use(args: tuple[str, ...], words: str) -> None:
    (message,) = messages(*args)
    assert words in message


WARNINGS = [
    (("-O3",), "CUDA graphs"),
    (("-O", "0"), "CUDA graphs"),
    (("-O=1",), "CUDA graphs"),
    (("--optimization_level=0",), "CUDA graphs"),
    (("-cc.cudagraph_mode", "NONE"), "CUDA graphs"),
    (("--compilation-config.cudagraph_capture_sizes=[1]",), "CUDA graphs"),
    (("--compilation_config", '{"mode": 3}'), "CUDA graphs"),
    (("--max-cudagraph-capture-size=8",), "CUDA graphs"),
    (("--cuda-graph-sizes", "8"), "CUDA graphs"),
    (("--enable-lora", "--max-loras=4", "--max-lora-rank", "64"), "adapters"),
    (("--hf-overrides", '{"rope_parameters": {"factor": 4.0}, "max_position_embeddings": 131072}'), "configJSON"),
    (("--hf-overrides.max_position_embeddings", "131072"), "configJSON"),
    (("--kv-events-config", "{}"), "port"),
    (("--no-enable-chunked-prefill",), "activation peak"),
]


@pytest.mark.parametrize(("args", "words"), WARNINGS, ids=[" ".join(args) for args, _ in WARNINGS])
def test_what_the_sizing_cannot_see_is_let_through_with_one_warning(args: tuple[str, ...], words: str) -> None:
    assert messages(*args) == []
    (doubt,) = doubts(*args)
    assert words in doubt


def test_a_free_flag_brings_no_warning() -> None:
    assert doubts("--seed=1", "--enable-log-requests") == []


def test_unknown_flag_passes_with_a_warning() -> None:
    assert messages("--flag-of-a-plugin", "value", "--enforce-eagre", "-zz=3") == []
    plugin, typo, short = doubts("--flag-of-a-plugin", "value", "--enforce-eagre", "-zz=3")
    assert plugin.startswith("--flag-of-a-plugin: not an argument of the vLLM version this operator was tested with;")
    assert "did you mean --enforce-eager?" in typo
    assert short.startswith("-zz: ")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("-tp2", "accelerator.perReplica"),
        ("-tp2=1", "accelerator.perReplica"),
        ("-dp2", "replicas of the tier"),
        ("-cc3", "write -cc=3"),
        ("---", "is not an argument"),
        ("---seed=1", "is not an argument"),
        ("--MAX-NUM-SEQS=8", "maxNumSeqs"),
        ("--Max_Num-Seqs", "maxNumSeqs"),
        ("-TP", "accelerator.perReplica"),
        ("--SEED=1", "write --seed"),
    ],
)
def test_what_only_looks_like_a_known_flag_is_refused(argument: str, words: str) -> None:
    (message,) = messages(argument)
    assert message.startswith(argument.partition("=")[0])
    assert words in message


@pytest.mark.parametrize(
    ("args", "index", "words"),
    [
        (("--max-num", "3"), 0, "ambiguous"),
        (("--seed=1", "--stream-interval=2", "--seed", "3"), 2, "repeats --seed"),
        (("--async-scheduling", "--no-async-scheduling"), 1, "repeats --async-scheduling"),
        (("--compilation-config.mode=1", "--compilation-config={}"), 1, "repeats"),
        (("--compilation-config={}", "-cc.mode=1"), 1, "repeats --compilation-config"),
        (("--compilation-config.mode=1", "--compilation_config.mode=2"), 1, "repeats"),
        (("--seed",), 0, "needs a value"),
        (("--seed", "--async-scheduling"), 0, "needs a value"),
        (("--async-scheduling=true",), 0, "takes no value"),
        (("--async-scheduling", "true"), 1, "belongs to no flag"),
        (("--",), 0, "not needed"),
        (("--seed 1",), 0, "two entries"),
        (("--foo --disable-log-stats",), 0, "every flag is an entry"),
    ],
)
def test_malformed_lists_are_refused_where_they_are_wrong(args: tuple[str, ...], index: int, words: str) -> None:
    (finding,) = checked(args)
    assert finding.path == f"args[{index}]"
    assert words in finding.message


@pytest.mark.parametrize(
    "args",
    [
        ("$(ARGS)",),
        ("--lora-modules", "a=/x", "$(ARGS)"),
        ("--$(NAME)=1",),
        ("--seed", "$(ARGS)"),
        ("--seed", "$$$(ARGS)"),
    ],
)
def test_a_variable_cannot_become_another_argument(args: tuple[str, ...]) -> None:
    assert messages(*args)


def test_an_escaped_variable_is_text() -> None:
    assert messages("--chat-template-content-format", "$$(ARGS)") == []


def test_a_value_of_an_unknown_flag_is_not_taken_for_the_model() -> None:
    assert paths("--flag-of-a-plugin", "value", "Qwen/Qwen3-8B") == ["args[2]"]


@pytest.mark.parametrize(
    "args",
    [
        ("--api-key=hunter2",),
        ("--api-key hunter2",),
        ("hunter2",),
        ("--flag-of-a-plugin", "x", "hunter2"),
        ("--async-scheduling=hunter2",),
        ("--hf-overrides", '{"token": "hunter2"}'),
    ],
)
def test_what_may_be_a_secret_is_not_repeated_in_the_message(args: tuple[str, ...]) -> None:
    (message,) = messages(*args)
    assert "hunter2" not in message


def test_statistics_may_be_off_unless_they_scale_the_tier() -> None:
    assert messages("--disable-log-stats") == []
    assert "StatsDisabled" in messages("--disable_log-stats", scaling=True)[0]


def test_every_flag_of_the_table_is_in_exactly_one_class() -> None:
    """A flag that a new version adds has to be judged before it can be let through."""
    classes = (set(OWNED), set(REFUSED), set(WARNED), set(FREE))
    known = {flag.name for flag in spellings().values()}
    counts = {name: sum(name in members for members in classes) for name in known.union(*classes)}
    assert {name for name in known if counts[name] != 1} == set()
    assert counts.keys() == known
    # Flags that are let through but for some values or keys.
    partly = set(REFUSED_VALUES) | {flag for flag, _ in OWNED_KEYS} | set(ONLY_KEYS)
    assert partly <= classes[2] | classes[3]


def test_flags_beside_the_table_are_not_in_it() -> None:
    """They would never be looked at: the table's own classes come first."""
    assert not {*REFUSED_BESIDE, *WARNED_BESIDE} & {*spellings()}
    assert all(not look_up(name).flags for name in (*REFUSED_BESIDE, *WARNED_BESIDE))


def test_the_table_holds_the_flags_of_one_version() -> None:
    table = {flag.name: flag for flag in spellings().values()}
    assert len(table) == 321
    assert table["--max-num-seqs"].takes is Takes.ONE
    assert table["--served-model-name"].takes is Takes.MANY
    assert table["--hf-token"].takes is Takes.OPTIONAL
    assert table["--enforce-eager"].takes is Takes.NONE


flag_names = st.sampled_from(sorted(spellings()))


@given(flag_names, st.data())
def test_every_spelling_the_parser_accepts_leads_to_its_flag(name: str, data: st.DataObject) -> None:
    """Underscores and shortening change nothing unless the beginning is shared by several flags."""
    flag = spellings()[name]
    written = "".join(data.draw(st.sampled_from("-_")) if c == "-" else c for c in name[2:])
    spelling = name[:2] + written if name.startswith("--") else name
    assert look_up(spelling).flags == (flag,)
    cut = data.draw(st.integers(min_value=3, max_value=max(3, len(name))))
    found = look_up(name[:cut]).flags
    assert flag in found or name[:cut] in spellings()


@given(st.lists(st.text(min_size=1, max_size=30), max_size=8))
def test_any_list_gets_an_answer(args: list[str]) -> None:
    places = {f"args[{index}]" for index in range(len(args))}
    assert {finding.path for finding in check_extra_arguments(args, None, path="args")} <= places


@given(st.sampled_from(sorted(OWNED)), st.sampled_from(["=", " "]), st.data())
def test_an_owned_flag_never_gets_through(name: str, joint: str, data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from(sorted(s for s, flag in spellings().items() if flag.name == name)))
    takes = spellings()[name].takes
    args = [spelling] if takes is Takes.NONE else [f"{spelling}=1"] if joint == "=" else [spelling, "1"]
    before = data.draw(st.sampled_from([[], ["--seed", "1"], ["--enable-lora"]]))
    assert f"args[{len(before)}]" in paths(*before, *args)


@given(st.sampled_from(sorted(REFUSED)), st.data())
def test_a_refused_flag_never_gets_through(name: str, data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from(sorted(s for s, flag in spellings().items() if flag.name == name)))
    assert paths(spelling if spellings()[name].takes is Takes.NONE else f"{spelling}=1") == ["args[0]"]


@given(st.sampled_from(sorted(WARNED)), st.data())
def test_a_doubtful_flag_never_gets_through_in_silence(name: str, data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from(sorted(s for s, flag in spellings().items() if flag.name == name)))
    assert checked((spelling if spellings()[name].takes is Takes.NONE else f"{spelling}=1",))
