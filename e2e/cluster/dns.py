"""Cluster DNS: CoreDNS as a process of the node, on the node's address."""

from __future__ import annotations

from cluster import builds, processes
from cluster.errors import ClusterError
from cluster.paths import write_atomically
from cluster.state import Component, Place, State

COREDNS = builds.Program(name="coredns", packages=((".", "coredns"),), minutes="2 to 5 minutes")

# Other names are refused at once: pods reach the node and the host, not the world outside.
_COREFILE = """cluster.local in-addr.arpa ip6.arpa {{
  bind {address}
  errors
  health 127.0.0.1:18091
  ready 127.0.0.1:18092
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 5
  }}
  cache 5 {{
    denial 1000 1 1
  }}
}}
"""


def start(state: State) -> None:
    """Start CoreDNS."""
    if state.network is None:
        raise ClusterError(f"cluster {state.name} has no node")
    binary = builds.ensure(COREDNS) / "coredns"
    corefile = state.folder / "Corefile"
    content = _COREFILE.format(address=state.network.node, kubeconfig=state.pki("coredns.kubeconfig"))
    write_atomically(corefile, content, mode=0o644)
    processes.start(state, Component("coredns", [str(binary), "-conf", str(corefile)], Place.NETWORK))
