"""Where a Ray cluster is looked for."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs agentgym-rl[cluster]"),
]

# In a process of its own: Ray reads its token at its import, and clusters of other tests set one.
ASK = """
import sys
from agentgym_rl.distributed.cluster import connected
from agentgym_rl.errors import ConfigError
print("imported", flush=True)
try:
    with connected(sys.argv[1]):
        pass
except ConfigError as error:
    print(error)
"""


def test_an_address_where_nothing_listens_is_refused_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command = [sys.executable, "-c", ASK, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "imported\n"
        started = time.monotonic()
        told = process.stdout.read()
    assert f"no Ray cluster answers at {address}: " in told and "refused" in told
    assert time.monotonic() - started < 5
