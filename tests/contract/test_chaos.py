"""Two hundred episodes while workers, servers and connections are killed fifty times.

A failure may cost an attempt, never a wrong observation or reward: every episode that ends equals
the one that was played undisturbed in this process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task
from chaos import CuttingProxy, FragileServer

ENVS = ("textcraft", "babyai")
NUM_EPISODES = 200
KILLS = {"server": 6, "worker": 14, "connections": 15, "answer": 15}
"""Fifty, or every fourth: a server with its workers, a worker, all connections of a server, one
mid-answer."""
MAX_ROUNDS = 20
SEED = 0
MAX_ATTEMPTS = 40
THINKING_S = 0.12
"""Mean time between rounds, as if a model were thinking; it spreads the episodes over the kills."""
CALL_TIMEOUT_S = 15.0
EPISODE_TIMEOUT_S = 200.0
TEST_TIMEOUT_S = 400.0
"""Both many times what is needed, for a machine that is busy."""
LEASE_S = 4.0
EMPTYING_S = 60.0
GARBAGE = ("", "\x00\x1b[0m", "漢字 \U0001f600", "x" * 5_000, '{"name": "go"}', "Action: look")


@dataclass(frozen=True, slots=True)
class Script:
    """An episode as it should go: what is done, and what was seen when nothing went wrong."""

    task: Task
    actions: tuple[str, ...]
    first_observation: str
    results: tuple[StepResult, ...]


def write_scripts(env: str, number: int, draw: random.Random) -> list[Script]:
    """Play episodes in this process, by the expert with nonsense in between."""
    playing = registry.make(env, {})
    scripts: list[Script] = []
    for task in draw.sample(list(playing.tasks("train")), number):
        first, actions, results = playing.reset(task), list[str](), list[StepResult]()
        while len(actions) < MAX_ROUNDS and not (results and results[-1].is_last):
            expert = playing.expert_action()
            garbage = draw.random() < 0.3 or expert is None
            actions.append(draw.choice(GARBAGE) if garbage else str(expert))
            results.append(playing.step(actions[-1]))
        scripts.append(Script(task, tuple(actions), first, tuple(results)))
    return scripts


async def play(source: HttpEnvSource, script: Script, draw: random.Random) -> int:
    """Play a script to its end, anew after every failure; return the number of attempts."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            await _attempt(source, script, draw)
        except EnvError:
            await asyncio.sleep(draw.uniform(0.1, 0.5))
            continue
        return attempt
    raise AssertionError(f"{script.task.id}: {MAX_ATTEMPTS} attempts failed")


async def _attempt(source: HttpEnvSource, script: Script, draw: random.Random) -> None:
    client = await source.open()
    try:
        assert await client.reset(script.task) == script.first_observation
        for action, expected in zip(script.actions, script.results, strict=True):
            await asyncio.sleep(draw.uniform(0, 2 * THINKING_S))
            assert await client.step(action) == expected, f"{script.task.id}: {action[:80]!r}"
    finally:
        await client.close()


class Chaos:
    """Kills something now and then."""

    def __init__(
        self, servers: Sequence[FragileServer], proxies: Sequence[CuttingProxy], seed: int
    ) -> None:
        self._servers = servers
        self._proxies = proxies
        self._draw = random.Random(seed)

    async def reign(self, *, every: int, pause_s: float) -> None:
        """Do every such kill in a random order, with a pause before each."""
        draw = self._draw
        kinds = [kind for kind, number in KILLS.items() for _ in range(0, number, every)]
        draw.shuffle(kinds)
        for kind in kinds:
            await asyncio.sleep(draw.uniform(0.5, 1.5) * pause_s)
            server, proxy = draw.choice(self._servers), draw.choice(self._proxies)
            match kind:
                case "server":
                    await asyncio.to_thread(server.kill_and_restart)
                case "worker":
                    while not server.kill_worker(draw):  # they may all have been killed just now
                        await asyncio.sleep(0.1)
                case "connections":
                    proxy.cut_all()
                case "answer":
                    await proxy.cut_next_answer()


@pytest.mark.timeout(500)
@pytest.mark.long
@pytest.mark.parametrize("every", [4, 1])
async def test_no_kill_gives_a_wrong_transcript_or_leaves_anything_behind(every: int):
    num_episodes = NUM_EPISODES // every
    draw = random.Random(SEED)
    scripts = {env: write_scripts(env, num_episodes // len(ENVS), draw) for env in ENVS}
    servers = {env: FragileServer(env, num_workers=2, lease_s=LEASE_S) for env in ENVS}
    await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers.values()))
    proxies = {env: CuttingProxy(server) for env, server in servers.items()}
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            for proxy in proxies.values():
                await proxy.start()
            attempts = await _play_all(scripts, servers, proxies, every)
            await _see_the_servers_empty(proxies)
    finally:
        for proxy in proxies.values():
            await proxy.stop()
        leftovers = await asyncio.gather(
            *(asyncio.to_thread(server.stop) for server in servers.values())
        )
    assert len(attempts) == num_episodes
    assert sum(attempts) > num_episodes, "the kills should have cost some attempts"
    print(f"{sum(attempts)} attempts at {num_episodes} episodes, at most {max(attempts)} at one")
    assert leftovers == [[], []], "processes are left over"


async def _play_all(
    scripts: dict[str, list[Script]],
    servers: dict[str, FragileServer],
    proxies: dict[str, CuttingProxy],
    every: int,
) -> list[int]:
    """Play every script while things are killed."""
    draw = random.Random(SEED + 1)
    sources = {env: HttpEnvSource(proxies[env].url, timeout_s=CALL_TIMEOUT_S) for env in ENVS}
    chaos = Chaos(list(servers.values()), list(proxies.values()), seed=SEED + 2)
    reign = asyncio.create_task(chaos.reign(every=every, pause_s=0.3))

    async def bounded(env: str, script: Script) -> int:
        await asyncio.sleep(draw.uniform(0, 22 / every))  # so that some run at every kill
        async with asyncio.timeout(EPISODE_TIMEOUT_S):
            return await play(sources[env], script, draw)

    attempts = await asyncio.gather(
        *(bounded(env, script) for env, written in scripts.items() for script in written)
    )
    await reign
    for source in sources.values():
        await source.aclose()
    return attempts


async def _see_the_servers_empty(proxies: dict[str, CuttingProxy]) -> None:
    """Wait for the leases of lost episodes to run out: no place may stay taken."""
    for proxy in proxies.values():
        async with HttpEnvSource(proxy.url, timeout_s=CALL_TIMEOUT_S) as source:
            deadline = time.monotonic() + EMPTYING_S
            while (health := await source.health()).num_episodes:
                assert time.monotonic() < deadline, f"episodes are left: {health}"
                await asyncio.sleep(0.2)
            assert health.num_abandoned == 0
