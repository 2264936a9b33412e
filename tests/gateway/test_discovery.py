"""How Envoy finds a tier's replicas: by the short name of a Service, as the pod's resolver completes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typing_extensions import override

from gateway.conftest import READY_DEADLINE_S, Replica, Running, free_port, gateway_of, running_envoy, serving, tier
from reasoningpool.render.gateway.bootstrap import bootstrap

CHAT = "/v1/chat/completions"
SEARCH = "llm.svc.cluster.local"
NAME = "p-chat-endpoints"


class ClusterDNS(asyncio.DatagramProtocol):
    """Answers A queries for the one full name with these addresses, everything else with "no such name"."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.asked: set[str] = set()

    @override
    def connection_made(self, transport) -> None:
        self.transport = transport

    @override
    def datagram_received(self, data: bytes, addr) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += data[at] + 1
        name, question = ".".join(labels), data[12 : at + 5]
        kind = int.from_bytes(data[at + 1 : at + 3])
        self.asked.add(name)
        known = name == f"{NAME}.{SEARCH}"
        found = self.addresses if known and kind == 1 else []
        head = data[:2] + (b"\x85\x80" if known else b"\x85\x83") + b"\0\1" + len(found).to_bytes(2) + b"\0\0\0\0"
        records = b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + bytes(map(int, address.split("."))) for address in found)
        self.transport.sendto(head + question + records, addr)


async def reached(running: Running) -> set[str]:
    """Names of the replicas that requests of many sessions reach."""
    found: set[str] = set()
    for number in range(32):
        headers = {"x-session-id": str(number)}
        found.add((await running.client.post(CHAT, json={"model": "math-chat"}, headers=headers)).json()["replica"])
    return found


async def test_the_ready_pods_of_a_tier_are_found_by_the_short_name_of_their_service(
    envoy_folder: Path, monkeypatch
) -> None:
    port, dns_port = free_port(), free_port()
    replicas = [Replica(f"replica-{i}", f"127.0.0.{i + 2}", port) for i in range(2)]
    loop = asyncio.get_running_loop()
    transport, dns = await loop.create_datagram_endpoint(
        lambda: ClusterDNS([replica.address for replica in replicas]), local_addr=("127.0.0.1", dns_port)
    )

    def with_resolver(gateway):
        document = bootstrap(gateway)
        kind = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"
        server = {"socket_address": {"address": "127.0.0.1", "port_value": dns_port, "protocol": "UDP"}}
        document["typed_dns_resolver_config"] = {
            "name": "envoy.network.dns_resolver.cares",
            "typed_config": {"@type": kind, "resolvers": [server]},
        }
        return document

    monkeypatch.setattr("gateway.conftest.bootstrap", with_resolver)
    # As the kubelet writes it into the pod's resolv.conf.
    monkeypatch.setenv("LOCALDOMAIN", f"{SEARCH} svc.cluster.local cluster.local")
    monkeypatch.setenv("RES_OPTIONS", "ndots:5")
    gateway = gateway_of(tier("chat", port, host=NAME))
    try:
        async with serving(replicas[0]), serving(replicas[1]), running_envoy(gateway, envoy_folder) as running:
            assert await reached(running) == {"replica-0", "replica-1"}
            assert dns.asked == {f"{NAME}.{SEARCH}"}
            dns.addresses.pop()
            async with asyncio.timeout(READY_DEADLINE_S):
                while True:
                    if await reached(running) == {"replica-0"}:
                        break
                    await asyncio.sleep(0.2)
    finally:
        transport.close()
