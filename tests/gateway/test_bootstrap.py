"""The rendered configuration by itself: Envoy accepts it, equal input gives equal bytes, and it fits its ConfigMap."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.conftest import envoy_binary
from reasoningpool.render.gateway.config_map import BOOTSTRAP_FILE, bootstrap_digest, bootstrap_text
from reasoningpool.render.gateway.types import GatewayTier, StandaloneGateway

GOLDEN = Path(__file__).parents[1] / "golden" / "files"
# Of all values of a ConfigMap together, in bytes.
CONFIG_MAP_LIMIT = 1 << 20
# Of the body of a fixed answer, by Envoy's default.
BODY_LIMIT = 4096


def rendered_bootstraps() -> dict[str, str]:
    """Of every golden file that has a gateway."""
    found: dict[str, str] = {}
    for path in sorted(GOLDEN.glob("*.render.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] == "ConfigMap" and BOOTSTRAP_FILE in document["data"]:
                found[path.name] = document["data"][BOOTSTRAP_FILE]
    return found


def largest() -> StandaloneGateway:
    """As many and as long names as the resource admits."""
    return StandaloneGateway(
        tiers=tuple(
            GatewayTier(
                name=f"{number:02}".replace("0", "a").replace("1", "b") + "x" * 38,
                models=(f"{number:02}" + "m" * 126,),
                endpoints_host=f"p-{number:02}" + "x" * 40 + "-endpoints",
                port=8000,
                longest_request_seconds=86_400,
                most_request_bytes=160_000_000,
                hostnames=tuple(f"h{number:02}-{place}." + "d" * 240 for place in range(8)),
            )
            for number in range(16)
        )
    )


def validate(text: str, folder: Path) -> None:
    config = folder / BOOTSTRAP_FILE
    config.write_text(text)
    command = [str(envoy_binary()), "--mode", "validate", "-c", str(config), "--use-dynamic-base-id"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr


def test_a_golden_file_has_a_gateway() -> None:
    assert "standalone-gateway.render.yaml" in rendered_bootstraps()


@pytest.mark.parametrize("name", rendered_bootstraps())
def test_envoy_accepts_every_golden_bootstrap(name: str, tmp_path: Path) -> None:
    validate(rendered_bootstraps()[name], tmp_path)


def test_the_largest_gateway_fits_its_config_map_and_envoy(tmp_path: Path) -> None:
    text = bootstrap_text(largest())
    assert len(text.encode()) < CONFIG_MAP_LIMIT
    hosts = json.loads(text)["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    bodies = [
        route["direct_response"]["body"]["inline_string"]
        for host in hosts["route_config"]["virtual_hosts"]
        for route in host["routes"]
        if "direct_response" in route
    ]
    assert len(bodies) >= 3
    assert max(map(len, bodies)) <= BODY_LIMIT
    validate(text, tmp_path)


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)


@st.composite
def gateways(draw) -> StandaloneGateway:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return StandaloneGateway(
        tiers=tuple(
            GatewayTier(
                name=name,
                models=tuple(draw(st.lists(NAMES, min_size=1, max_size=2))),
                endpoints_host=f"p-{name}-endpoints",
                port=8000,
                longest_request_seconds=draw(st.integers(1, 86_400)),
                most_request_bytes=draw(st.integers(1 << 20, 1 << 28)),
                hostnames=(f"{name}.example.com",) if draw(st.booleans()) else (),
            )
            for name in names
        )
    )


@given(gateways(), gateways())
def test_equal_gateways_give_equal_bytes_and_others_another_digest(one, other) -> None:
    assert bootstrap_text(one) == bootstrap_text(StandaloneGateway(tiers=tuple(one.tiers)))
    assert (bootstrap_digest(one) == bootstrap_digest(other)) == (bootstrap_text(one) == bootstrap_text(other))
    clusters = [cluster["name"] for cluster in json.loads(bootstrap_text(one))["static_resources"]["clusters"]]
    assert clusters == [tier.name for tier in one.tiers]
