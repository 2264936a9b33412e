"""Where the API server is and who we are: a kubeconfig, or the service account of the pod we run in."""

from __future__ import annotations

import logging
import os
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from reasoningpool.adapters.sending import CheckedRequest
from reasoningpool.api.text import printable

log = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Projected tokens are replaced when 80 % of their life is over, two minutes of ten at the least.
TOKEN_REREAD_SECONDS: Final = 60.0
_MOST_WORDS: Final = 300  # characters shown of an error

# Reads the credentials again; awaited after a 401.
Relogin = Callable[[], Awaitable[None]]


class NoCluster(Exception):  # noqa: N818
    """Neither a kubeconfig nor a service account leads to a cluster; the message says what was tried."""


class TokenFile:
    """A service-account token on disk, which the kubelet replaces under us."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = 0.0
        self._token = ""

    def current(self) -> str:
        """The token, read again when the last reading is a minute old."""
        if not self._token or time.monotonic() - self._read_at >= TOKEN_REREAD_SECONDS:
            self.reread()
        return self._token

    def reread(self) -> None:
        """Read the file now; the old token is kept when the file is empty or gone for a moment."""
        try:
            text = self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            if not self._token:
                message = f"cannot read the service account token {self._path}: {error}"
                raise NoCluster(message) from error
            log.warning("cannot read the service account token again: %s", error)
            text = ""
        if text:
            self._token = text
        self._read_at = time.monotonic()


async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> tuple[ApiClient, Relogin]:
    """A client for the cluster: the given kubeconfig, else the pod's service account, else KUBECONFIG or ~/.kube."""
    env = os.environ if environ is None else environ
    if kubeconfig is None and env.get("KUBERNETES_SERVICE_HOST") and (service_account_dir / "token").exists():
        return _in_cluster(env, service_account_dir)
    return await _from_kubeconfig(kubeconfig or env.get("KUBECONFIG"), context)


def _in_cluster(env: Mapping[str, str], directory: Path) -> tuple[ApiClient, Relogin]:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT") or "443"
    if ":" in host:
        host = f"[{host}]"
    token = TokenFile(directory / "token")
    # No proxy here: one meant for the internet (HTTPS_PROXY in the pod) is never the way to the own API server.
    configuration = _configuration()
    configuration.host = f"https://{host}:{port}"
    configuration.ssl_ca_cert = str(directory / "ca.crt")

    def refresh(target: Configuration) -> None:
        target.api_key["BearerToken"] = f"Bearer {token.current()}"

    refresh(configuration)
    configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]

    async def relogin() -> None:
        token.reread()

    return ApiClient(configuration), relogin


async def _from_kubeconfig(path: str | None, context: str | None) -> tuple[ApiClient, Relogin]:
    configuration = _configuration()

    async def load() -> None:
        await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=context, client_configuration=configuration, persist_config=False
        )

    tried = path or "~/.kube/config"
    try:
        await load()
        _check_server(configuration.host)
        if not configuration.proxy:
            configuration.proxy = _proxy_for(configuration.host)
        return ApiClient(configuration), load
    except (kube_config.ConfigException, OSError) as error:
        message = f"no cluster: {tried}: {_line(error)}; give --kubeconfig, set KUBECONFIG, or run inside a pod"
        raise NoCluster(message) from error
    except Exception as error:
        # The client reads the file without looking whether its parts are what they should be.
        message = f"no cluster: {tried} is not a usable kubeconfig ({type(error).__name__}: {_line(error)})"
        raise NoCluster(message) from error


def _check_server(host: str) -> None:
    url = urllib.parse.urlsplit(host)
    if url.scheme not in {"http", "https"} or not url.hostname:
        message = f"its server {host!r} is not an http or https URL"
        raise kube_config.ConfigException(message)


def _line(error: Exception) -> str:
    """An error in one line; of YAML's only what is wrong and where, since the text beside it may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        return printable(f"{error.problem or error.context}{where}")
    return printable(" ".join(str(error).split()))[:_MOST_WORDS]


def _configuration() -> Configuration:
    # trust_env would look for a netrc file in a worker thread at every request, and a hit there would break
    # the Authorization header; the proxy variables are honoured by _proxy_for instead.
    return Configuration(client_session_kwargs={"trust_env": False, "request_class": CheckedRequest})


def _proxy_for(host: str) -> str | None:
    url = urllib.parse.urlsplit(host)
    if url.hostname is None or urllib.request.proxy_bypass(url.hostname):
        return None
    return urllib.request.getproxies().get(url.scheme)
