"""An episode is the same on every way to it, for every built-in environment.

In process, over HTTP by routes and in batches, in one and in several worker processes, and through
OpenEnv's protocol. The server runs in a process with another hash seed, so an order that depends on
hashing shows.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.compat.openenv.source import OpenEnvSource
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.types import Task
from env_servers import server_process

GARBAGE = (
    "",
    "\x00\x1b[0m",
    "漢字 \U0001f600 \ud800",
    "x" * 100_000,
    '{"name": "go"}',
    "Action: look",
)
NUM_TASKS = {"miniwob": 2, "web": 2, "sciworld": 1, "babyai": 3, "searchqa": 3}
"""Tasks of each split; 6 where an environment is not named."""
MAX_ROUNDS = 15
TIMEOUT_S = 300.0
"""Of a call: what is compared are answers, on a machine that may be busy."""
EXPENSIVE = ("babyai", "miniwob", "sciworld", "searchqa", "web")
"""Environments of which only the long tests play; what differs between ways is in the others."""


def choose_actions(env: Environment, task: Task, seed: int) -> list[str]:
    """Return a mixture of expert, listed and garbage actions for the task."""
    draw = random.Random(seed)
    actions: list[str] = []
    env.reset(task)
    while len(actions) < MAX_ROUNDS:
        kind = draw.random()
        action: str | None = draw.choice(GARBAGE)
        if kind < 0.6:
            action = env.expert_action() or action
        elif kind < 0.8:
            action = draw.choice(env.available_actions() or GARBAGE)
        actions.append(action)
        if env.step(action.encode(errors="replace").decode()).is_last:
            break
    return actions


async def transcript(client: EnvClient, task: Task, actions: list[str]) -> list[object]:
    """Play the actions and return everything that could be seen on the way."""
    seen: list[object] = [await client.reset(task)]
    for number, action in enumerate(actions):
        if number % 5 == 0:  # listing them is slow in some environments
            seen.append(await client.available_actions())
        seen.append(await client.step(action))
        seen.append(await client.observation())
    return seen


async def transcripts(
    source: EnvSource, tasks: list[Task], actions: list[list[str]]
) -> list[list[object]]:
    """Play all tasks at once, each with its own client."""

    async def play(task: Task, chosen: list[str]) -> list[object]:
        async with await source.open() as client:
            return await transcript(client, task, chosen)

    return await asyncio.gather(*map(play, tasks, actions))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in EXPENSIVE else ())
        for name in sorted(set(registry.BUILTIN) - {"webarena"})  # which needs addresses
    ],
)
async def test_episodes_are_equal_on_every_way(name: str):
    local = LocalEnvSource(name)
    spec = await local.spec()
    tasks: list[Task] = []
    for split in spec.splits:
        tasks += random.Random(0).sample(await local.tasks(split), NUM_TASKS.get(name, 6))
    env = registry.make(name, {})
    actions = [choose_actions(env, task, seed) for seed, task in enumerate(tasks)]
    env.close()
    here = await transcripts(local, tasks, actions)
    for num_workers in (0, 2):
        with server_process(name, hash_seed=12345, num_workers=num_workers) as (url, _):
            ours = HttpEnvSource(url, timeout_s=TIMEOUT_S)
            for way in (ours, OpenEnvSource(f"{url}/openenv", timeout_s=TIMEOUT_S)):
                async with way:
                    assert await way.spec() == spec
                    for split in spec.splits:
                        assert await way.tasks(split) == await local.tasks(split)
                    assert await transcripts(way, tasks, actions) == here
