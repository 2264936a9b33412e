"""The operator's options: one declaration, told by flags, environment, help, the deployment and the documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from reasoningpool.cli import main
from reasoningpool.process import settings as module
from reasoningpool.process.settings import Declared, Settings, declared, unknown_variables

ROOT = Path(__file__).parents[3]
OPTIONS = declared()
every_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


class Started:
    """What `reasoningpool run` would have started with."""

    settings: Settings | None = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        monkeypatch.setattr("reasoningpool.process.operator.run", self._run)
        monkeypatch.setattr("reasoningpool.process.logs.configure", lambda **_: None)

    def _run(self, settings: Settings, **_: Any) -> int:
        self.settings = settings
        return 0

    def invoke(self, *arguments: str, **environ: str) -> Result:
        self.settings = None
        return CliRunner().invoke(main, ["run", *arguments], env=environ)

    def value(self, option: Declared, *arguments: str, **environ: str) -> Any:
        result = self.invoke(*arguments, **environ)
        assert result.exit_code == 0, result.output
        return getattr(self.settings, option.field)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Started:
    return Started(monkeypatch)


def samples(option: Declared) -> tuple[Any, Any]:
    """Two values that are not the default."""
    if option.choices:
        others = [choice for choice in option.choices if choice != option.default]
        return others[0], (*others[1:], option.default)[0]
    if option.type is bool:
        return not option.default, option.default
    if option.type in {int, float}:
        return option.type(option.default + 1), option.type(option.default + 2)
    return "one", "two"


def flags(option: Declared, value: Any) -> list[str]:
    if option.type is bool:
        return [f"--{option.name}" if value else f"--no-{option.name}"]
    return [f"--{option.name}", str(value)]


def typed(option: Declared, *values: Any) -> Any:
    return values if option.repeated else values[-1]


def test_without_flags_and_variables_everything_has_its_default(run: Started) -> None:
    assert run.invoke().exit_code == 0
    assert run.settings == Settings()


@every_option
def test_every_option_is_set_by_its_flag(run: Started, option: Declared) -> None:
    first, _ = samples(option)
    assert run.value(option, *flags(option, first)) == typed(option, first)


@every_option
def test_every_option_is_set_by_its_environment_variable(run: Started, option: Declared) -> None:
    first, _ = samples(option)
    assert option.variable == "REASONINGPOOL_" + option.name.upper().replace("-", "_")
    assert run.value(option, **{option.variable: str(first)}) == typed(option, first)


@every_option
def test_a_flag_wins_over_the_variable_and_an_empty_variable_is_none(run: Started, option: Declared) -> None:
    first, second = samples(option)
    assert run.value(option, *flags(option, second), **{option.variable: str(first)}) == typed(option, second)
    assert run.value(option, **{option.variable: ""}) == option.default


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.repeated], ids=lambda option: option.name)
@pytest.mark.parametrize("text", ["one,two", "one two", " one, two ,"])
def test_repeated_options_take_repeated_flags_and_lists_in_the_variable(
    run: Started, option: Declared, text: str
) -> None:
    assert run.value(option, *flags(option, "one"), *flags(option, "two")) == ("one", "two")
    assert run.value(option, **{option.variable: text}) == ("one", "two")


@every_option
def test_help_shows_every_option_with_variable_and_default(option: Declared) -> None:
    text = CliRunner().invoke(main, ["run", "--help"], terminal_width=1000).output
    entry = next(part for part in re.split(r"\n  (?=-)", text) if part.startswith(f"--{option.name} "))
    assert option.option.help in entry
    assert f"env var: {option.variable};" in entry
    shown = option.name if option.type is bool else option.option.default_text or str(option.default)
    assert re.search(rf"default: \(?{re.escape(shown)}\)?[;\]]", entry)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"REASONINGPOOL_HEALTH_PORT": "http"}, "'http' is not a valid integer"),
        ({"REASONINGPOOL_HEALTH_PORT": "70000"}, "70000 is not in the range -1<=x<=65535"),
        ({"REASONINGPOOL_LEADER_ELECTION": "maybe"}, "'maybe' is not a valid boolean"),
        ({"REASONINGPOOL_NAMESPACE": "Not_A_Name"}, "'Not_A_Name' is not a namespace name"),
        ({"REASONINGPOOL_NAMESPACE": ","}, "',' is not a namespace name"),
        ({"REASONINGPOOL_LEASE_NAMESPACE": "a.b"}, "'a.b' is not a namespace name"),
        ({"REASONINGPOOL_ALLOWED_SERVICE_ACCOUNT": "engine,No"}, "'No' is not an object name"),
        ({"REASONINGPOOL_LEASE_NAME": "x" * 254}, "is not an object name"),
        ({"REASONINGPOOL_LOG_FORMAT": "xml"}, "'xml' is not one of 'json', 'text'"),
        ({"REASONINGPOOL_LOG_LEVEL": "loud"}, "'loud' is not one of 'debug', 'info'"),
        ({"REASONINGPOOL_CONCURRENCY": "0"}, "0 is not in the range"),
        ({"REASONINGPOOL_RESYNC_SECONDS": "0"}, "0.0 is not in the range 0<x"),
        ({"REASONINGPOOL_COMPARE_SECONDS": "nan"}, "nan is not a finite number"),
        ({"REASONINGPOOL_WATCH_SILENCE_SECONDS": "inf"}, "inf is not in the range"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_option_and_variable(
    run: Started, environ: dict[str, str], words: str
) -> None:
    result = run.invoke(**environ)
    (variable,) = environ
    (option,) = [option for option in OPTIONS if option.variable == variable]
    assert result.exit_code == 2
    assert run.settings is None
    assert words in result.output
    assert f"--{option.name}" in result.output
    assert variable in result.output


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("REASONINGPOOL_NAMESPACES", "REASONINGPOOL_NAMESPACE"),
        ("REASONINGPOOL_ALLOWED_SERVICE_ACCOUNTS", "REASONINGPOOL_ALLOWED_SERVICE_ACCOUNT"),
        ("REASONINGPOOL_HEALT_PORT", "REASONINGPOOL_HEALTH_PORT"),
    ],
)
def test_a_misspelled_variable_ends_the_start_and_names_the_nearest(run: Started, name: str, nearest: str) -> None:
    result = run.invoke(**{name: "1"})
    assert result.exit_code == 2
    assert run.settings is None
    assert f"unknown environment variable {name}; did you mean {nearest}?" in result.output


def test_a_variable_like_no_option_is_warned_about(run: Started, caplog: pytest.LogCaptureFixture) -> None:
    assert run.invoke(REASONINGPOOL_CACHE="/tmp").exit_code == 0
    assert run.settings == Settings()
    assert [record.getMessage() for record in caplog.records] == [
        "environment variable REASONINGPOOL_CACHE is ignored: no option of the operator has that name"
    ]


def test_variables_that_the_kubelet_adds_for_services_are_not_options() -> None:
    links = {
        "REASONINGPOOL_SERVICE_HOST": "10.0.0.1",
        "REASONINGPOOL_SERVICE_PORT_HTTP": "80",
        "REASONINGPOOL_PORT": "tcp://10.0.0.1:80",
        "REASONINGPOOL_PORT_80_TCP_ADDR": "10.0.0.1",
        "REASONINGPOOL_OPERATOR_PORT": "udp://10.0.0.1:80",
    }
    assert unknown_variables(links) == ()
    assert [found.name for found in unknown_variables({"REASONINGPOOL_HEALT_PORT": "80"})] == [
        "REASONINGPOOL_HEALT_PORT"
    ]


def test_the_deployment_names_only_options_that_exist() -> None:
    deployment = yaml.safe_load((ROOT / "operator" / "deploy" / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *arguments = container["args"]
    assert command == "run"
    names = {option.name for option in OPTIONS} | {f"no-{option.name}" for option in OPTIONS if option.type is bool}
    assert {re.split("[ =]", argument)[0] for argument in arguments} <= {f"--{name}" for name in names}
    assert {entry["name"] for entry in container.get("env", [])} <= {option.variable for option in OPTIONS}
    assert pod["enableServiceLinks"] is False
    (port,) = container["ports"]
    assert port["containerPort"] == Settings().health_port or "--health-port" in str(arguments)


def test_the_lease_lives_beside_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NAMESPACE_FILE", tmp_path / "namespace")
    assert Settings().lease_home() == "default"
    (tmp_path / "namespace").write_text("reasoningpool-system\n")
    assert Settings().lease_home() == "reasoningpool-system"
    assert Settings(lease_namespace="other").lease_home() == "other"
