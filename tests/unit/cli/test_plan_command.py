"""`reasoningpool plan` as a user sees it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner, Result

from reasoningpool.cli import main
from support.pools import chat_tier, pool, tier

DATA = Path(__file__).parents[2] / "data"
AZURE = str(DATA / "request_logs" / "azure_llm_2023_conv_head.csv")
PAGE = str(DATA / "vllm_lengths_0_33.txt")


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments], input=stdin)


@pytest.fixture
def pools(tmp_path: Path) -> str:
    return written(tmp_path, pool(tiers=[tier(objectives={"timeToFirstAnswerTokenSeconds": 120})]))


def written(folder: Path, body: dict[str, Any], name: str = "pool.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(body, sort_keys=False))
    return str(path)


def planned(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> dict[str, Any]:
    result = run(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_trace_gives_replicas_latencies_and_costs(pools: str) -> None:
    found = planned(pools, "--trace", AZURE, "--rate", "20", "--price-per-gpu-hour", "2.5")
    assert found["estimate"] is True
    (entry,) = found["tiers"]
    assert entry["requests"] == 300
    assert entry["gpus"] == entry["replicas"] >= 1
    assert entry["cost"]["perHour"] == entry["gpus"] * 2.5
    assert entry["cost"]["perThousandAnswers"] == pytest.approx(entry["cost"]["perHour"] / 72, rel=1e-3)
    (effort,) = entry["efforts"]
    times = effort["timeToFirstAnswerTokenSeconds"]
    assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= effort["endToEndSeconds"]["p99"]
    (chosen,) = [point for point in entry["curve"] if point["derived"]]
    assert chosen["maxNumSeqs"] == entry["maxNumSeqs"]


def test_table_says_what_is_estimated_and_assumed(pools: str) -> None:
    text = run(pools, "--trace", AZURE, "--rate", "20", "--price-per-gpu-hour", "2.5").stdout
    for words in (
        "(estimate)",
        "no GPU was measured",
        "thinking and answers are not recorded separately",
        "saturated replica, by max_num_seqs",
        "assumed",
    ):
        assert words in " ".join(text.split())


def test_snippet_put_into_the_file_gives_the_same_sequences(tmp_path: Path, pools: str) -> None:
    """The plan's max_num_seqs is what the operator derives once the distribution is in the resource."""
    entry = planned(pools, "--trace", AZURE, "--rate", "5")["tiers"][0]
    assert entry["maxNumSeqsOfFile"] < entry["maxNumSeqs"]
    changed = pool(tiers=[tier(tokenDistribution=entry["tokenDistribution"])])
    explained = CliRunner().invoke(main, ["explain", written(tmp_path, changed, "b.yaml"), "-o", "json"])
    assert json.loads(explained.stdout)["tiers"][0]["sizing"]["maxNumSeqs"] == entry["maxNumSeqs"]


def test_rate_of_the_log_is_the_default(pools: str) -> None:
    entry = planned(pools, "--trace", AZURE)["tiers"][0]
    first, *_, last = (datetime.fromisoformat(line.split(",")[0]) for line in Path(AZURE).read_text().splitlines()[1:])
    assert entry["ratePerSecond"] == pytest.approx(299 / (last - first).total_seconds(), rel=1e-3)


def test_prompts_beyond_the_budget_are_reported_and_not_counted_as_saving(tmp_path: Path) -> None:
    small = written(tmp_path, pool(tiers=[tier(promptTokens=1)]), "small.yaml")
    large = written(tmp_path, pool(tiers=[tier(promptTokens=16_384)]), "large.yaml")
    options = ("--trace", AZURE, "--rate", "60")
    tiny, whole = (planned(path, *options)["tiers"][0] for path in (small, large))
    assert tiny["replicas"] >= whole["replicas"] > 1
    assert tiny["longPrompts"]["overBudgetShare"] > 0.9
    assert whole["longPrompts"] is None
    words = " ".join(run(small, *options).stdout.split())
    assert f"promptTokens {tiny['longPrompts']['promptTokensOf99Percent']:,} covers 99 %" in words
    assert "exceed promptTokens 1; the engine refuses" in words


def test_without_objectives_the_headline_says_that_throughput_alone_counts(tmp_path: Path, pools: str) -> None:
    bare = written(tmp_path, pool(tiers=[tier()]), "bare.yaml")
    words = " ".join(run(bare, "--trace", AZURE, "--rate", "1").stdout.split())
    assert (
        "no latency objective is set (objectives.timeToFirstAnswerTokenSeconds,"
        " objectives.timePerOutputTokenMilliseconds): the replicas are for throughput alone" in words
    )
    assert "throughput alone" not in run(pools, "--trace", AZURE, "--rate", "1").stdout


def test_columns_and_unit_of_times_may_be_named(tmp_path: Path, pools: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text("when,in,out\n" + "".join(f"{1000 * n},100,50\n" for n in range(300)))
    named = [f"--column={role}={name}" for role, name in (("time", "when"), ("prompt", "in"), ("output", "out"))]
    entry = planned(pools, "--trace", str(log), *named, "--time-unit", "ms")["tiers"][0]
    assert entry["ratePerSecond"] == pytest.approx(1.0)
    assert entry["efforts"][0]["promptTokens"]["p50"] == 100


def test_rate_is_asked_for_where_no_times_are(pools: str) -> None:
    result = run(pools, "--distribution", "500,2000,4000")
    assert result.exit_code == 2
    assert "--rate is needed for tier reasoning" in result.stderr


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (range(50), "50 arrivals in the log are too few for a rate; at least 200"),
        ([7] * 300, "all arrivals in the log are at the same time"),
    ],
)
def test_log_whose_arrivals_tell_no_rate_says_why(tmp_path: Path, pools: str, times: Any, words: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text("timestamp,prompt_tokens,output_tokens\n" + "".join(f"{n},100,50\n" for n in times))
    result = run(pools, "--trace", str(log))
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "--rate is needed for tier reasoning" in said
    assert words in said


def test_budgets_that_stand_for_lengths_are_not_advised_on_nor_drawn(tmp_path: Path, pools: str) -> None:
    svg = tmp_path / "out.svg"
    entry = planned(pools, "--rate", "1", "--svg", str(svg))["tiers"][0]
    assert entry["advice"] == entry["budgets"] == entry["tokenDistribution"] == []
    assert entry["maxNumSeqs"] == entry["maxNumSeqsOfFile"]
    labels = [node.text or "" for node in ET.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert "no lengths were observed: every run is taken at its whole budget" in labels
    assert not [label for label in labels if "%" in label]


def test_objectives_that_the_plan_uses_are_not_called_without_effect(pools: str) -> None:
    result = run(pools, "--trace", AZURE, "--rate", "1")
    assert "objective timeToFirstAnswerTokenSeconds 120 s" in result.stdout
    assert "no effect yet: it is for scaling" not in " ".join((result.stdout + result.stderr).split())


def test_percentiles_of_each_effort(tmp_path: Path) -> None:
    efforts = [
        {"name": "low", "thinkingTokens": 512, "answerTokens": 512},
        {"name": "high", "thinkingTokens": 8192, "answerTokens": 2048},
    ]
    path = written(tmp_path, pool(tiers=[tier(efforts=efforts)]))
    found = planned(
        path, "--rate", "4", "--distribution", "low=200,400,700", "--distribution", "high=1500,4000,8000",
        "--prompt-distribution", "500,1500,3000", "--effort-share", "low=3", "--effort-share", "high=1",
    )  # fmt: skip
    low, high = found["tiers"][0]["efforts"]
    assert (low["share"], high["share"]) == (0.75, 0.25)
    assert low["timeToFirstAnswerTokenSeconds"]["p90"] < high["timeToFirstAnswerTokenSeconds"]["p50"]
    distribution = {entry["effort"]: entry for entry in found["tiers"][0]["tokenDistribution"]}
    assert distribution["high"]["output"]["p90"] == pytest.approx(4000, rel=0.02)
    assert distribution["low"]["prompt"]["p90"] == pytest.approx(1500, rel=0.02)


def test_without_a_source_the_files_own_lengths_count(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pool(tiers=[tier(tokenDistribution=[{"effort": "medium", "output": {"p50": 9, "p90": 90, "p99": 99}}])]),
    )
    entry = planned(path, "--rate", "1")["tiers"][0]
    assert entry["maxNumSeqs"] == entry["maxNumSeqsOfFile"]
    assert entry["efforts"][0]["promptTokens"]["p50"] == 4096


def test_saved_metrics_page_is_a_source(pools: str) -> None:
    entry = planned(pools, "--metrics", PAGE, "--rate", "2")["tiers"][0]
    assert entry["requests"] == 35
    assert any("no other is there, though the tier serves 'qwen3-32b-fp8'" in text for text in entry["assumptions"])


def test_page_of_other_models_only_is_reported(tmp_path: Path, pools: str) -> None:
    text = Path(PAGE).read_text()
    path = tmp_path / "page.txt"
    path.write_text(text + text.replace('"tiny"', '"huge"'))
    result = run(pools, "--metrics", str(path), "--rate", "2")
    assert result.exit_code == 2
    assert "none of the tier's served name 'qwen3-32b-fp8'" in result.stderr


@pytest.mark.parametrize("option", ["--trace", "--metrics"])
def test_standard_input_is_a_source(pools: str, option: str) -> None:
    body = Path(AZURE if option == "--trace" else PAGE).read_bytes()
    assert planned(pools, option, "-", "--rate", "2", stdin=body)["tiers"][0]["source"] == "standard input"


def test_tier_column_splits_the_log_and_the_rate(tmp_path: Path) -> None:
    path = written(tmp_path, pool(tiers=[tier(), chat_tier()]))
    rows = "".join(f"reasoning,900,{n},50\n" + "chat,500,0,200\n" * 3 for n in range(500, 600))
    log = tmp_path / "log.csv"
    log.write_text("tier,prompt_tokens,thinking_tokens,answer_tokens\n" + rows)
    reasoning, chat = planned(path, "--trace", str(log), "--rate", "8")["tiers"]
    assert (reasoning["ratePerSecond"], chat["ratePerSecond"]) == (2, 6)
    assert (reasoning["requests"], chat["requests"]) == (100, 300)


def test_one_tier_may_be_chosen_and_has_its_own_rate(tmp_path: Path) -> None:
    path = written(tmp_path, pool(tiers=[tier(), chat_tier()]))
    (only,) = planned(path, "--tier", "chat", "--trace", AZURE, "--rate", "1", "--rate", "chat=3")["tiers"]
    assert (only["name"], only["ratePerSecond"]) == ("chat", 3)
    both = run(path, "--trace", AZURE, "--rate", "1").stdout
    assert "each tier is planned for all (--tier selects one)" in " ".join(both.split())
    assert "has no tier 'other'; it has reasoning, chat" in run(path, "--tier", "other", "--rate", "1").stderr


def test_objective_out_of_reach_exits_with_3_and_says_what_would_keep_it(tmp_path: Path) -> None:
    path = written(tmp_path, pool(tiers=[tier(objectives={"timeToFirstAnswerTokenSeconds": 2})]))
    result = run(path, "--distribution", "2000,4000,5000", "--rate", "1")
    assert result.exit_code == 3
    words = " ".join(result.stdout.split())
    assert "so no number of replicas keeps it; thinking of up to" in words


def test_tier_that_does_not_fit_exits_with_3_and_its_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, pool(accelerator={"product": "L4-24GB"}))
    result = run(path, "--trace", AZURE, "--rate", "1")
    assert result.exit_code == 3
    for word in ("does not fit", "needed", "available", "missing"):
        assert word in result.stdout
    assert planned(path, "--trace", AZURE, "--rate", "1", code=3)["tiers"][0]["doesNotFit"]["missingBytes"] > 0


def test_budgets_are_advised_on(tmp_path: Path, pools: str) -> None:
    rows = "".join(f"100,{n * 40},{n}\n" for n in range(1, 401))
    log = tmp_path / "log.csv"
    log.write_text("prompt_tokens,thinking_tokens,answer_tokens\n" + rows)
    entry = planned(pools, "--trace", str(log), "--rate", "1")["tiers"][0]
    kinds = {(advice["field"], advice["kind"]) for advice in entry["advice"]}
    assert kinds == {
        ("promptTokens", "NeverReached"), ("thinkingTokens", "CutsTooMuch"), ("answerTokens", "NeverReached"),
    }  # fmt: skip
    thinking = next(advice for advice in entry["advice"] if advice["field"] == "thinkingTokens")
    assert thinking["tokens"] == 4096
    assert 15_840 <= thinking["suggestedTokens"] <= 16_128


def test_known_mistakes_are_warned_of(tmp_path: Path) -> None:
    body = pool(
        engine={"image": "vllm/vllm-openai:v0.28.0", "kvCacheDType": "FP8", "allowUnverifiedKVCacheDType": True},
        accelerator={"product": "A100-SXM-80GB"},
        tiers=[
            tier(speculative={"method": "EAGLE3", "tokens": 1, "model": "org/eagle3-head"}),
            chat_tier(promptTokens=4096, efforts=[{"name": "none", "thinkingTokens": 0, "answerTokens": 5120}]),
        ],
    )
    result = run(written(tmp_path, body), "--rate", "1")
    words = " ".join((result.stdout + result.stderr).split())
    assert "do not enforce the budget" in words
    assert "have one budget" in words
    assert "FP8 is not known to work on A100-SXM-80GB" in words


def test_thinking_beyond_max_model_len_is_an_error_of_the_file(tmp_path: Path) -> None:
    result = run(written(tmp_path, pool(tiers=[tier(maxModelLen=6000)])), "--rate", "1")
    assert result.exit_code == 2
    assert "6000 tokens cannot hold a request of effort medium" in result.stderr


def test_picture_is_written(tmp_path: Path, pools: str) -> None:
    path = tmp_path / "out.svg"
    assert run(pools, "--trace", AZURE, "--rate", "1", "--svg", str(path)).exit_code == 0
    assert ET.parse(path).getroot().tag.endswith("svg")
    result = run(pools, "--trace", AZURE, "--rate", "1", "--svg", str(tmp_path / "none" / "out.svg"))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        (b"", "", "is empty"),
        (b"a,b\n1,2\n", ":1", "has no column for output tokens"),
        (b"prompt_tokens,output_tokens\n1,2\n3,-4\n", ":3", "not negative"),
        (b"prompt_tokens,output_tokens\n1,2\n3,nan\n", ":3", "not a whole number"),
        (b"prompt_tokens,output_tokens\n1,2\n3,x\n", ":3", "not a whole number"),
        (b"prompt_tokens,output_tokens\n1,2\n3,10000000\n", ":3", "more than any model's context"),
        (b"prompt_tokens,output_tokens\n1,2\n\xff\x00", ":3", "is not UTF-8 text"),
        (b"\x1f\x8b\x08\x00", ":1", "cut off"),
    ],
)
def test_bad_log_is_one_line_with_file_and_line_and_exit_code_2(
    tmp_path: Path, pools: str, body: bytes, line: str, words: str
) -> None:
    log = tmp_path / "log"
    log.write_bytes(body)
    result = run(pools, "--trace", str(log), "--rate", "1")
    assert result.exit_code == 2
    (error,) = [text for text in result.stderr.splitlines() if not text.startswith("warning")]
    assert error.startswith(f"error: {log}{line}: ")
    assert words in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "none.csv", "--rate", "1"), "none.csv: cannot be read: No such file"),
        (("--metrics", "none.txt", "--rate", "1"), "none.txt: cannot be read: No such file"),
        (("--metrics", "http://127.0.0.1:9/metrics", "--rate", "1"), "cannot be reached"),
        (("--prometheus", "localhost:9090", "--rate", "1"), "is not an http:// or https:// address"),
        (("--rate", "0"), "'0' is not a rate in requests per second"),
        (("--rate", "nan"), "'nan' is not a rate"),
        (("--rate", "1", "--rate", "2"), "--rate is given twice"),
        (("--rate", "1", "--price-per-gpu-hour", "-1"), "'-1' is not price"),
        (("--rate", "1", "--distribution", "3,2,1"), "'3,2,1' is not p50,p90,p99"),
        (("--rate", "1", "--distribution", "max=1,2,3"), "has no effort 'max'"),
        (("--rate", "1", "--effort-share", "50"), "'50' is not EFFORT=PERCENT"),
        (("--rate", "1", "--column", "size=x"), "roles are prompt, thinking"),
        (("--metrics", "http://[bad", "--rate", "1"), "http://[bad: is not a valid address: Invalid IPv6 URL"),
        (("--prometheus", "http://[bad", "--rate", "1"), "http://[bad: is not a valid address: Invalid IPv6 URL"),
        (("--prometheus", "http://host:port", "--rate", "1"), "is not a valid address: Port could not be cast"),
        (("--metrics", "http://", "--rate", "1"), "is not a valid address: it names no host"),
        (("--window", "6h", "--rate", "1"), "--window goes with --prometheus"),
        (("--time-unit", "ms", "--rate", "1"), "--time-unit goes with --trace"),
        (("--metrics", PAGE, "--column", "output=x", "--rate", "1"), "--column goes with --trace"),
        (("--trace", "a", "--metrics", "b"), "exclude each other"),
        (("--trace", AZURE, "--prompt-distribution", "1,2,3"), "goes with --distribution"),
    ],
)
def test_bad_options_exit_with_2_and_say_what_is_wrong(pools: str, arguments: tuple[str, ...], words: str) -> None:
    result = run(pools, *arguments)
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_file_and_log_cannot_both_be_standard_input() -> None:
    assert "cannot both be standard input" in run("-", "--trace", "-", stdin="").stderr
