"""The network of a cluster with a node: a namespace, one link to the host and a block of addresses of its own."""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING

from cluster import processes
from cluster.errors import ClusterError
from cluster.state import Network, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.tools import Tools

BLOCKS = range(64, 250)  # 10.64.0.0/16 to 10.249.0.0/16
NODE_INTERFACE = "eth0"
LINK_BITS = 30


def choose(tools: Tools, identity: str, taken: Iterable[str]) -> Network:
    """The first block of 10.0.0.0/8 that no route of the host and no other cluster touches."""
    used = [ipaddress.ip_network(block) for block in (*_routes(tools), *taken)]
    for second in BLOCKS:
        block = ipaddress.ip_network(f"10.{second}.0.0/16")
        if not any(block.overlaps(other) for other in used if other.version == 4):
            return Network(
                block=str(block),
                host=f"10.{second}.0.1",
                node=f"10.{second}.0.2",
                pods=f"10.{second}.64.0/18",
                services=f"10.{second}.128.0/17",
                host_interface=f"rp{identity[:10]}",
            )
    raise ClusterError(
        "no block of 10.64.0.0/16 to 10.249.0.0/16 is free of routes; remove clusters with `python -m cluster down`"
    )


def connect(state: State, tools: Tools) -> None:
    """Link the namespace of the holder to the host. The link and its routes vanish with the namespace."""
    network = _network(state)
    holder = processes.of_component(state, processes.HOLDER).pid
    host = network.host_interface
    inside = ("nsenter", f"--target={holder}", "--net", "--", "ip")
    tools.run("ip", "link", "add", host, "type", "veth", "peer", "name", NODE_INTERFACE, "netns", str(holder))
    tools.run(*inside, "link", "set", "lo", "up")
    tools.run(*inside, "address", "add", f"{network.node}/{LINK_BITS}", "dev", NODE_INTERFACE)
    tools.run(*inside, "link", "set", NODE_INTERFACE, "up")
    tools.run(*inside, "route", "add", "default", "via", network.host)
    tools.run("ip", "address", "add", f"{network.host}/{LINK_BITS}", "dev", host)
    tools.run("ip", "link", "set", host, "up")
    for block in (network.pods, network.services):
        tools.run("ip", "route", "add", block, "via", network.node, "dev", host)


def remove(state: State, tools: Tools) -> None:
    """Remove the host's end of the link, for the case that the namespace still lingers."""
    tools.run("ip", "link", "delete", _network(state).host_interface, check=False)


def _routes(tools: Tools) -> list[str]:
    routes = json.loads(tools.run("ip", "-json", "-4", "route", "show", "table", "all").stdout or "[]")
    found = []
    for route in routes:
        destination = route["dst"]
        if destination != "default" and route.get("type") != "multicast":
            found.append(destination)
    return found


def _network(state: State) -> Network:
    if state.network is None:
        raise ClusterError(f"cluster {state.name} has no node")
    return state.network
