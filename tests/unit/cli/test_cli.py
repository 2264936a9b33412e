"""The command line as a user sees it: exit codes, files and lines of what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from reasoningpool.cli import main
from support.pools import changed, pool, tier


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def written(folder: Path, body: object) -> str:
    path = folder / "pool.yaml"
    path.write_text(body if isinstance(body, str) else yaml.safe_dump(body, sort_keys=False))
    return str(path)


def line_of(path: str, text: str) -> int:
    return next(number for number, line in enumerate(Path(path).read_text().splitlines(), 1) if text in line)


def test_unknown_field_is_named_with_file_line_and_path(tmp_path: Path) -> None:
    path = written(tmp_path, changed(pool(), "spec.tiers.0.promtTokens", 5))
    result = run("explain", path)
    assert result.exit_code == 2
    assert f"{path}:{line_of(path, 'promtTokens')}: spec.tiers[0].promtTokens: unknown field" in result.stderr


@pytest.mark.parametrize("command", ["explain", "render"])
@pytest.mark.parametrize(
    ("field", "words"),
    [("sepc", "sepc: unknown field: did you mean spec?"), ("zzz", "zzz: unknown field"), (5, "5: un")],
)
def test_unknown_field_beside_the_spec_is_refused_with_the_nearest_name(
    tmp_path: Path, command: str, field: object, words: str
) -> None:
    path = written(tmp_path, pool() | {field: {"a": 1}})
    result = run(command, path)
    assert result.exit_code == 2
    assert f"{path}:{line_of(path, f'{field}:')}: {words}" in result.stderr
    assert result.stdout == ""


def test_every_problem_is_named_not_only_the_first(tmp_path: Path) -> None:
    body = changed(changed(pool(), "spec.accelerator.perReplica", "two"), "spec.tiers.0.workload", "Batch")
    lines = run("render", written(tmp_path, body)).stderr.splitlines()
    assert len(lines) == 2
    assert any("perReplica: must be a whole number, not 'two'" in line for line in lines)
    assert any("workload: must be one of 'Reasoning' or 'Chat', not 'Batch'" in line for line in lines)


def test_unknown_model_is_named_with_its_line_and_what_to_write(tmp_path: Path) -> None:
    path = written(tmp_path, pool(model={"id": "Qwen/Qwen3-33B"}))
    result = run("explain", path)
    assert result.exit_code == 2
    assert f"{path}:{line_of(path, 'Qwen3-33B')}: spec.model.id:" in result.stderr
    assert "configJSON" in result.stderr
    assert "Qwen/Qwen3-32B" in result.stderr


def test_does_not_fit_says_numbers_and_the_nearest_change_and_exits_with_3(tmp_path: Path) -> None:
    path = written(tmp_path, pool(accelerator={"product": "L4-24GB"}))
    result = run("explain", path)
    assert result.exit_code == 3
    for word in ("needed", "available", "missing"):
        assert word in result.stdout
    assert run("render", path).exit_code == 3


def test_the_prompt_that_is_named_fits_once_written_and_one_token_more_does_not(tmp_path: Path) -> None:
    efforts = [
        {"name": "low", "thinkingTokens": 1024, "answerTokens": 512},
        {"name": "high", "thinkingTokens": 16_384, "answerTokens": 2048},
    ]
    body = pool(model={"id": "Qwen/Qwen3-32B-FP8"}, accelerator={"product": "H100-SXM-80GB"}, tiers=[
        tier(promptTokens=100_000, efforts=efforts)
    ])  # fmt: skip
    result = run("explain", "-o", "json", written(tmp_path, body))
    assert result.exit_code == 3
    answer = json.loads(result.stdout)["tiers"][0]["doesNotFit"]
    assert (answer["neededTokens"], answer["availableTokens"], answer["missingTokens"]) == (118_464, 40_960, 77_504)
    assert not [key for key in answer if key.endswith("Bytes")]
    table = " ".join(run("explain", written(tmp_path, body)).stdout.split())
    assert "needed 118,464 tokens, available 40,960 tokens, missing 77,504 tokens; shorten" in table
    assert "GiB" not in table
    (text,) = answer["suggestions"]
    (named,) = re.findall(r"^shorten the budgets: promptTokens to ([\d,]+) \(now 100,000\)$", text)
    tokens = int(named.replace(",", ""))
    assert run("explain", written(tmp_path, changed(body, "spec.tiers.0.promptTokens", tokens))).exit_code == 0
    assert run("explain", written(tmp_path, changed(body, "spec.tiers.0.promptTokens", tokens + 1))).exit_code == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not valid YAML"),
        ("- 1", "is not a Kubernetes object but a list"),
        ("just text", "is not a Kubernetes object but text"),
        ("", "holds no ReasoningPool"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "holds no ReasoningPool"),
        (
            "apiVersion: reasoningpool.io/v1\nkind: ReasoningPool\nmetadata: {name: a}\nspec: {}\n",
            "apiVersion: must be",
        ),
        ("kind: ReasoningPool\nkind: ReasoningPool\n", "key 'kind' is written twice"),
        ("&a [*a]", "is no"),
        ("\x00", "is not valid YAML"),
        ('a: 1\nb: !!timestamp "x"\n', ":2: is not valid YAML: 'x' is not a value of type timestamp"),
        ('b: !!bool "x"\n', ":1: is not valid YAML: 'x' is not a value of type bool"),
        ('b: !!int ""\n', ":1: is not valid YAML: '' is not a value of type int"),
        ("b: !!float [1]\n", ":1: is not valid YAML"),
        ("b: !!python/object:os.system x\n", ":1: is not valid YAML"),
        ("kind: ReasoningPool\nmetadata: 5\nspec: 7\n", "metadata.name"),
    ],
)
def test_bad_file_gives_one_clear_line_and_exit_code_2(tmp_path: Path, text: str, words: str) -> None:
    result = run("explain", written(tmp_path, text))
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_missing_file_and_binary_file_are_no_tracebacks(tmp_path: Path) -> None:
    assert "cannot be read" in run("render", str(tmp_path / "none.yaml")).stderr
    binary = tmp_path / "b"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in run("render", str(binary)).stderr


def test_a_file_without_end_is_refused_by_its_size() -> None:
    assert "is larger than 8 MiB" in run("explain", "/dev/zero").stderr


def program(*arguments: str, **environment: str) -> list[str]:
    settings = [f"{name}={value}" for name, value in environment.items()]
    return ["/usr/bin/env", *settings, sys.executable, "-m", "reasoningpool.cli", *arguments]


@pytest.mark.parametrize("command", ["explain", "render"])
def test_a_full_device_is_one_line_and_exit_code_1(tmp_path: Path, command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            program(command, written(tmp_path, pool())), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


def test_a_terminal_without_unicode_gets_text_and_a_manifest_that_says_the_same(tmp_path: Path) -> None:
    note = "caf\u00e9 \u2192 \u4e16"
    path = written(tmp_path, changed(pool(), "spec.tiers.0.podOverrides", {"annotations": {"note": note}}))
    explained = subprocess.run(program("explain", path, PYTHONIOENCODING="latin-1"), capture_output=True, check=False)
    assert (explained.returncode, explained.stderr) == (0, b"")
    assert b"--max-num-seqs" in explained.stdout
    rendered = subprocess.run(program("render", path, PYTHONIOENCODING="latin-1"), capture_output=True, check=True)
    notes = [
        d["spec"]["template"]["metadata"]["annotations"]["note"]
        for d in yaml.safe_load_all(rendered.stdout.decode("ascii"))
        if d["kind"] == "StatefulSet"
    ]
    assert notes == [note]


def test_other_objects_of_a_file_are_passed_over_and_stdin_works() -> None:
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n---\n" + yaml.safe_dump(pool())
    result = run("render", "-", stdin=text)
    assert result.exit_code == 0
    assert next(yaml.safe_load_all(result.stdout))["kind"] == "ServiceAccount"


def test_rendered_stateful_set_has_the_replicas_that_the_scale_manager_applies() -> None:
    body = pool(tiers=[tier(replicas=3)])
    rendered = list(yaml.safe_load_all(run("render", "-", stdin=yaml.safe_dump(body)).stdout))
    assert [d["spec"]["replicas"] for d in rendered if d["kind"] == "StatefulSet"] == [3]


def test_warnings_go_to_stderr_with_their_line(tmp_path: Path) -> None:
    path = written(tmp_path, changed(pool(), "spec.engine.image", "vllm/vllm-openai:latest"))
    result = run("render", path)
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "does not name vLLM's version" in result.stderr
    assert "warning" not in result.stdout


@pytest.mark.parametrize("kind", ["List", "ReasoningPoolList"])
def test_what_kubectl_get_prints_is_read_with_the_line_of_every_problem(kind: str) -> None:
    def live(name: str, **fields: object) -> dict[str, object]:
        body = pool(name)
        body["metadata"] |= {
            "namespace": "prod",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {".": {}}}}],
        }
        return body | {"status": {"anything": [1]}} | fields

    body = {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": ""}, "items": [live("a"), live("b")]}
    result = run("explain", "-", stdin=yaml.safe_dump(body))
    assert result.exit_code == 0, result.output
    assert "a / reasoning" in result.stdout
    assert "b / reasoning" in result.stdout
    assert result.stderr == ""
    assert run("render", "-", stdin=json.dumps(body)).exit_code == 0

    text = yaml.safe_dump(body | {"items": [live("a"), live("b", spec=pool()["spec"] | {"typo": 1})]})
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "typo" in line)
    result = run("explain", "-", stdin=text)
    assert result.exit_code == 2
    assert result.stderr == f"error: <stdin>:{line}: spec.typo: unknown field\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: v1\nkind: List\nitems: []\n", "holds no ReasoningPool"),
        ("apiVersion: v1\nkind: List\nitems: {}\n", "items: must be a list"),
        ("apiVersion: v1\nkind: List\n", "items: must be a list"),
        ("apiVersion: v1\nkind: List\nitems: [1, null]\n", "is not a Kubernetes object"),
    ],
)
def test_a_list_without_pools_is_one_clear_line(text: str, words: str) -> None:
    result = run("explain", "-", stdin=text)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_help_tells_of_standard_input() -> None:
    assert "kubectl get rp -o yaml | reasoningpool explain -" in run("explain", "--help").stdout


@pytest.mark.parametrize("namespace", ["../../x", "Prod", "a.b", "-a", "a" * 64, "a\nb", 5, ["a"]])
@pytest.mark.parametrize("command", ["render", "explain"])
def test_a_namespace_that_kubernetes_would_refuse_is_refused(command: str, namespace: object) -> None:
    result = run(command, "-", stdin=yaml.safe_dump(changed(pool(), "metadata.namespace", namespace)))
    assert result.exit_code == 2
    assert "metadata.namespace: must have lower-case letters" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("name", ["../x", "A", "1a", "a-", "a.b", "a\nb", "", None])
def test_a_name_that_kubernetes_would_refuse_is_refused(name: object) -> None:
    result = run("render", "-", stdin=yaml.safe_dump(changed(pool(), "metadata.name", name)))
    assert result.exit_code == 2
    assert "metadata.name: must be set to lower-case letters" in result.stderr


@pytest.mark.parametrize("generation", ["x", None, [], 1.5])
def test_an_odd_generation_does_no_harm(generation: object) -> None:
    assert run("render", "-", stdin=yaml.safe_dump(changed(pool(), "metadata.generation", generation))).exit_code == 0


HOSTILE = "\x1b[31m\x9b2J\u202eevil\r\nerror: forged"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.engine.extraArgs", [HOSTILE]),
        ("spec.engine.extraArgs", [f"--{HOSTILE}"]),
        ("spec.engine.extraArgs", [f"--max-num-seqs.{HOSTILE}=1"]),
        ("spec.engine.image", HOSTILE),
        ("spec.model.configJSON", json.dumps({"model_type": HOSTILE, "architectures": [HOSTILE]})),
        ("spec.model.configJSON", HOSTILE),
        (f"spec.{HOSTILE}", 1),
        ("metadata.name", HOSTILE),
        ("metadata.namespace", HOSTILE),
        ("kind", HOSTILE),
    ],
)
@pytest.mark.parametrize("command", ["render", "explain"])
def test_no_text_of_a_file_reaches_the_terminal_raw(command: str, path: str, value: object) -> None:
    result = run(command, "-", stdin=yaml.safe_dump(changed(pool(), path, value)))
    assert result.exit_code == 2
    lines = (result.stdout + result.stderr).splitlines()
    assert lines
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("error: forged") for line in lines)


def test_a_malformed_kubeconfig_ends_run_with_code_2_and_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, "contexts: 5\n")
    command = [sys.executable, "-m", "reasoningpool.cli", "run", "--kubeconfig", path, "--log-format", "text"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"{path} is not a usable kubeconfig" in done.stderr


def test_crd_command_prints_the_committed_file() -> None:
    committed = Path(__file__).parents[3] / "crds" / "reasoningpool.yaml"
    assert run("crd").stdout == committed.read_text()


def test_explain_shows_what_the_chosen_risk_costs(tmp_path: Path) -> None:
    path = written(tmp_path, pool())
    assert "saturated replica" not in run("explain", path).stdout
    text = run("explain", "--curve", path).stdout
    (tier_json,) = json.loads(run("explain", "--curve", "-o", "json", path).stdout)["tiers"]
    number = tier_json["sizing"]["maxNumSeqs"]
    (own,) = [point for point in tier_json["curve"] if point["derived"]]
    assert own["maxNumSeqs"] == number
    assert own["preemptedSharePermille"] <= 10 < tier_json["curve"][-1]["preemptedSharePermille"]
    (marked,) = [line for line in text.splitlines() if line.startswith("  > ")]
    assert marked.split()[1] == str(number)
    assert f"{own['outputTokensPerSecond']:,.0f}" in marked


def test_a_tier_that_does_not_fit_has_no_curve(tmp_path: Path) -> None:
    path = written(tmp_path, pool(accelerator={"product": "L4-24GB"}))
    assert "saturated replica" not in run("explain", "--curve", path).stdout
    assert json.loads(run("explain", "--curve", "-o", "json", path).stdout)["tiers"][0]["curve"] == []


def test_explain_and_status_give_the_same_preempted_share(tmp_path: Path) -> None:
    (tier_json,) = json.loads(run("explain", "-o", "json", written(tmp_path, pool())).stdout)["tiers"]
    (shown,) = [step["value"] for step in tier_json["steps"] if step["name"] == "preempted requests"]
    assert shown == f"{tier_json['sizing']['preemptedSharePermille'] / 10:.1f} %"


def test_explain_tells_the_chat_templates_share_of_a_prompt(tmp_path: Path) -> None:
    assert "(32 of them the chat template's)" in " ".join(run("explain", written(tmp_path, pool())).stdout.split())
