"""A hundred episodes while their server is killed and started again: nobody notices but the clock.

The server is `agentgym serve` itself, killed with SIGKILL while every episode is under way and
started again on its port after a while; once reached directly, once through a proxy that accepts
connections all the time and resets them while the server is away.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.rollout.collect import collect
from agentgym_rl.types import Episode
from chaos import CuttingProxy
from fake_engines import FakeSession, KeyedEngine, make_limits, make_participants

NUM_TASKS, GROUP_SIZE = 25, 4
NUM_EPISODES = NUM_TASKS * GROUP_SIZE
WORDS = {
    "textcraft_generated": ("inventory", "get 1 pindle bark", "craft 1 cord using 1 bark", "look"),
    "babyai": ("turn left", "turn right", "move forward", "look", "open the door"),
}
_SERVE = "from agentgym_rl.cli.main import main; main()"


class HeldEngine(KeyedEngine):
    """Replies at once up to some round of each session, and then not before `go_on` is set."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)
        self.go_on = asyncio.Event()
        self.all_held = asyncio.Event()
        """Set when every episode is held, or has ended before."""
        self.num_held = 0
        self._num_ended = 0

    async def reply(self, session: FakeSession) -> str:
        if session.num_replies == 1 + session.key % 4:
            self.num_held += 1
            self._look_around()
            await self.go_on.wait()
        return await super().reply(session)

    def note_end(self, episode: Episode) -> None:
        self._num_ended += 1
        self._look_around()

    def _look_around(self) -> None:
        if self.num_held + self._num_ended == NUM_EPISODES:
            self.all_held.set()


class Server:
    """`agentgym serve` in a process of its own, always on the same port."""

    def __init__(self, env: str) -> None:
        self._env = env
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        """Start it; blocks until it answers."""
        command = [sys.executable, "-c", _SERVE, "serve", self._env, "--workers", "2"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # "babyai at http://127.0.0.1:41001 (Ctrl-C stops)"
        self.port = int(line.split()[2].rpartition(":")[2])

    def kill(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait(60)
        self._process.stdout.close()


@asynccontextmanager
async def way_to(server: Server, *, is_proxied: bool) -> AsyncIterator[str]:
    """Give the address at which the server is reached."""
    if not is_proxied:
        yield f"http://127.0.0.1:{server.port}"
        return
    proxy = CuttingProxy(server)
    await proxy.start()
    try:
        yield proxy.url
    finally:
        await proxy.stop()


async def play_all(source: HttpEnvSource, engine: HeldEngine) -> list[Episode]:
    """Return the episodes with what may differ between equal runs left out: their times."""
    groups = await collect(
        (await source.tasks("test"))[:NUM_TASKS],
        await make_participants(source, engine),
        make_limits(max_rounds=8, max_seconds=600.0),
        group_size=GROUP_SIZE,
        noise=(0, "restart"),
        temperature=1.0,
        max_concurrency=NUM_EPISODES,
        on_episode=engine.note_end,
    )
    return [replace(episode, seconds=0.0) for group in groups for episode in group.episodes]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_proxied", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize(
    ("env", "outage_s"),
    [
        ("textcraft_generated", 2.0),
        pytest.param("babyai", 30.0, marks=pytest.mark.long),
    ],
)
async def test_a_killed_server_that_comes_back_costs_no_episode(
    env: str, outage_s: float, is_proxied: bool
):
    server = Server(env)
    await asyncio.to_thread(server.start)
    try:
        async with (
            way_to(server, is_proxied=is_proxied) as url,
            HttpEnvSource(url) as source,
        ):
            undisturbed = HeldEngine(WORDS[env])
            undisturbed.go_on.set()
            expected = await play_all(source, undisturbed)

            disturbed = HeldEngine(WORDS[env])
            playing = asyncio.create_task(play_all(source, disturbed))
            async with asyncio.timeout(200):
                await disturbed.all_held.wait()
            assert disturbed.num_held > 0.8 * NUM_EPISODES
            disturbed.go_on.set()
            await asyncio.sleep(0)  # the first calls are on their way
            await asyncio.to_thread(server.kill)
            started = time.monotonic()
            await asyncio.sleep(outage_s)  # the outage itself, not a wait for something
            await asyncio.to_thread(server.start)
            away_s = time.monotonic() - started
            seen = await playing
    finally:
        with suppress(AssertionError):
            server.kill()
    print(f"{len(seen)} episodes of {env}, away for {away_s:.1f} s")
    assert len(seen) == NUM_EPISODES
    assert [episode.error for episode in seen if episode.is_failed] == []
    assert {episode.num_restarts for episode in seen} == {0}
    assert seen == expected
