"""What keeps the health endpoints from listening is told in one line."""

from __future__ import annotations

import socket

import pytest

from reasoningpool.process.health import Health, PortTaken, State


async def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    good = State(good=True, text="ok")
    health = Health(live=lambda: good, ready=lambda: good)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            await health.start("127.0.0.1", port)
    await health.stop()
    assert f"127.0.0.1:{port}: Address already in use" in str(caught.value)
    assert "\n" not in str(caught.value)
