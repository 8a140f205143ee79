"""Environment servers for tests: real HTTP on a free port, in a thread or in a process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from agentgym_rl.envs.access.serve import Address, EnvServer
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.service.client import patience
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.errors import EnvBusyError

_PROGRAM = """
import json, sys
from agentgym_rl.envs.access.serve import Address, EnvServer
from agentgym_rl.envs.service.server.backend import ServerLimits
limits = ServerLimits(**json.loads(sys.argv[2]))
num_workers = int(sys.argv[3])
tell = lambda url: print(url, flush=True)
port = int(sys.argv[4])
EnvServer(
    sys.argv[1], Address(port=port), limits=limits, num_workers=num_workers, on_ready=tell
).run()
"""


@contextmanager
def server_thread(
    env: str,
    *,
    limits: ServerLimits | None = None,
    token: str | None = None,
    num_workers: int = 0,
) -> Iterator[str]:
    """Serve `env` from a thread of this process; give the address."""
    ready = threading.Event()
    server = EnvServer(
        env,
        Address(port=0, token=token),
        limits=limits,
        num_workers=num_workers,
        on_ready=lambda url: ready.set(),
    )
    thread = threading.Thread(target=server.run, name="test-env-server")
    thread.start()
    try:
        assert ready.wait(60), "the server did not start"
        yield server.url
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def server_process(
    env: str, *, hash_seed: int = 0, num_workers: int = 0, port: int = 0, **limits: float
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve `env` from a process of its own; give the address and the process."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, env, json.dumps(limits), str(num_workers), str(port)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, "the server did not start"
        yield url, process
    finally:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


class RawClient:
    """Requests by hand, to see statuses and bodies as they are."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.headers: dict[str, str] = {}

    async def __call__(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None
    ) -> tuple[int, dict]:
        """Return the status and the decoded body; the headers of the answer are in `headers`."""
        data = raw if raw is not None else (json.dumps(body) if body is not None else None)
        async with self._session.request(method, self._url + path, data=data) as response:
            self.headers = {name.lower(): value for name, value in response.headers.items()}
            text = await response.text()
            return response.status, json.loads(text) if text else {}

    async def batch(self, *calls: dict[str, object]) -> dict[int, tuple[int, dict]]:
        """Send a batch of calls numbered 0, 1, ...; return the status and the body of each."""
        numbered = [{"call": number, **call} for number, call in enumerate(calls)]
        body = json.dumps({"calls": numbered})
        async with self._session.post(f"{self._url}/batch", data=body) as response:
            assert response.status == 200, await response.text()
            answers = [json.loads(line) for line in (await response.text()).splitlines()]
        assert sorted(answer["call"] for answer in answers) == list(range(len(calls)))
        return {answer["call"]: (answer["status"], answer["body"] or {}) for answer in answers}

    async def start(self, index: int = 4) -> str:
        """Open an episode of the served fake on one of its train tasks; return its path."""
        _, spec = await self("GET", "/spec")
        _, created = await self("POST", "/episodes", {})
        path = f"/episodes/{created['episode']}"
        task = {"env": spec["name"], "split": "train", "index": index}
        status, _ = await self("POST", f"{path}/reset", {"task": task})
        assert status == 200
        return path


@asynccontextmanager
async def raw_client(url: str, token: str | None = None) -> AsyncIterator[RawClient]:
    """Give a `RawClient` of the server at `url`."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield RawClient(session, url)


async def see_it_waited_for(source: EnvSource, patch: pytest.MonkeyPatch, *, told: str) -> None:
    """See that the one place of a full server is waited for, and what is told without the time.

    The source has a deadline of no more than 60 s.
    """
    patch.setattr(patience, "_BUSY_PAUSE_S", 0.1)
    first = await source.open()
    second = asyncio.create_task(source.open())
    await asyncio.sleep(0.2)
    assert not second.done()
    await first.close()
    await (await second).close()
    patch.setattr(patience, "_BUSY_PAUSE_S", 60.0)  # no time for a second try
    first = await source.open()
    with pytest.raises(EnvBusyError, match=told):
        await source.open()
    await first.close()
    await (await source.open()).close()
