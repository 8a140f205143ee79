"""Where a Ray cluster is looked for."""

from __future__ import annotations

import socket
import time

import pytest

from agentgym_rl.errors import ConfigError

pytest.importorskip("ray")

from agentgym_rl.distributed.cluster import connected


def test_an_address_where_nothing_listens_is_refused_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    started = time.monotonic()
    with (
        pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}: .*refused"),
        connected(address),
    ):
        pass
    assert time.monotonic() - started < 5
