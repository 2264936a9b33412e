"""Settings from flags and the environment."""

import pytest

from reasoningpool.process.settings import BadSettings, Settings


def test_defaults_serve_all_namespaces_with_leader_election():
    settings = Settings.of({})
    assert settings.namespaces is None
    assert settings.leader_election
    assert settings.log_format == "json"


def test_the_environment_is_read_and_flags_win():
    environ = {
        "REASONINGPOOL_NAMESPACES": "llm, chat",
        "REASONINGPOOL_LEADER_ELECTION": "false",
        "REASONINGPOOL_HEALTH_PORT": "9000",
        "REASONINGPOOL_RESYNC_SECONDS": "60.5",
        "REASONINGPOOL_LOG_LEVEL": " ",
    }
    settings = Settings.of(environ, health_port=9001, kubeconfig=None)
    assert settings.namespaces == ("llm", "chat")
    assert not settings.leader_election
    assert settings.health_port == 9001
    assert settings.resync_seconds == 60.5
    assert settings.log_level == "info"


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"REASONINGPOOL_HEALTH_PORT": "http"}, "REASONINGPOOL_HEALTH_PORT='http'"),
        ({"REASONINGPOOL_LEADER_ELECTION": "maybe"}, "write true or false"),
        ({"REASONINGPOOL_NAMESPACES": "Not_A_Name"}, "is not a namespace name"),
        ({"REASONINGPOOL_NAMESPACES": ","}, "name at least one"),
        ({"REASONINGPOOL_LOG_FORMAT": "xml"}, "write json or text"),
        ({"REASONINGPOOL_LOG_LEVEL": "loud"}, "write one of debug, info"),
        ({"REASONINGPOOL_CONCURRENCY": "0"}, "concurrency is 0: it must be above 0"),
        ({"REASONINGPOOL_HEALTH_PORT": "70000"}, "write a port"),
    ],
)
def test_a_bad_setting_is_named_with_what_to_write(environ, words):
    with pytest.raises(BadSettings, match=words):
        Settings.of(environ)


def test_the_lease_lives_beside_the_operator(tmp_path, monkeypatch):
    from reasoningpool.process import settings as module

    monkeypatch.setattr(module, "_NAMESPACE_FILE", tmp_path / "namespace")
    assert Settings().lease_home() == "default"
    (tmp_path / "namespace").write_text("reasoningpool-system\n")
    assert Settings().lease_home() == "reasoningpool-system"
    assert Settings(lease_namespace="other").lease_home() == "other"
