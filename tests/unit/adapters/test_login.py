"""Credentials that change on disk while we run."""

import json

import pytest

from reasoningpool.adapters import login
from reasoningpool.adapters.login import NoCluster, TokenFile, connect


@pytest.fixture
def account(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text("")
    # An empty CA bundle is refused by OpenSSL; which CA it is does not matter here.
    monkeypatch.setattr("ssl.create_default_context", lambda **_: None)
    return tmp_path


def in_cluster(account):
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "HTTPS_PROXY": "http://proxy"}
    return connect(environ=environ, service_account_dir=account)


async def bearer(api):
    return (await api.configuration.auth_settings())["BearerToken"]["value"]


@pytest.fixture
def tls(monkeypatch):
    class Context:
        verify_flags = 0
        check_hostname = True

    monkeypatch.setattr("ssl.create_default_context", lambda **_: Context())


@pytest.mark.field_report("K13")
async def test_rotated_token_is_reread_after_a_minute_and_after_a_401(account, tls, monkeypatch):
    api, relogin = await in_cluster(account)
    assert await bearer(api) == "Bearer one"
    (account / "token").write_text("two")
    assert await bearer(api) == "Bearer one"
    await relogin()
    assert await bearer(api) == "Bearer two"
    (account / "token").write_text("three")
    monkeypatch.setattr(login, "TOKEN_REREAD_SECONDS", 0.0)
    assert await bearer(api) == "Bearer three"
    await api.close()


async def test_in_a_pod_the_api_server_is_reached_without_a_proxy(account, tls):
    api, _ = await in_cluster(account)
    assert api.configuration.host == "https://10.96.0.1:443"
    assert api.configuration.proxy is None
    assert api.configuration.client_session_kwargs["trust_env"] is False
    await api.close()


def test_a_token_file_that_vanishes_for_a_moment_keeps_its_token(tmp_path):
    token = TokenFile(tmp_path / "token")
    with pytest.raises(NoCluster, match="cannot read the service account token"):
        token.current()
    (tmp_path / "token").write_text("one")
    assert token.current() == "one"
    (tmp_path / "token").unlink()
    token.reread()
    assert token.current() == "one"


async def test_no_cluster_says_what_was_tried(tmp_path):
    with pytest.raises(NoCluster, match="give --kubeconfig"):
        await connect(kubeconfig=str(tmp_path / "absent"), environ={})


CLUSTER = {"server": "https://127.0.0.1:1"}
CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": CLUSTER}],
    "users": [{"name": "u", "user": {"token": "hunter2"}}],
}


def with_cluster(**fields):
    return json.dumps(CONFIG | {"clusters": [{"name": "c", "cluster": CLUSTER | fields}]}).encode()


async def test_a_good_kubeconfig_is_taken(tmp_path):
    (tmp_path / "config").write_bytes(with_cluster())
    api, _ = await connect(kubeconfig=str(tmp_path / "config"), environ={})
    assert api.configuration.host == CLUSTER["server"]
    await api.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a: [",
        b"- 1",
        b"just text",
        b"\xff\xfe\x00",
        b"users: [{name: u, user: {token: hunter2}}\n",
        json.dumps(CONFIG | {"contexts": 5}).encode(),
        json.dumps(CONFIG | {"users": [{"name": "u"}]}).encode(),
        json.dumps(CONFIG | {"current-context": "y"}).encode(),
        with_cluster(server="not a url"),
        with_cluster(server=5),
        with_cluster(**{"certificate-authority-data": "!"}),
        with_cluster(**{"certificate-authority-data": "aGVsbG8="}),
        with_cluster(**{"certificate-authority": "/nowhere/ca.crt"}),
    ],
)
async def test_a_malformed_kubeconfig_is_one_clear_line_without_its_secrets(tmp_path, content):
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(NoCluster) as refused:
        await connect(kubeconfig=str(path), environ={})
    message = str(refused.value)
    assert message.startswith(f"no cluster: {path}")
    assert message.isprintable()
    assert "hunter2" not in message
