"""Episodes in worker processes that belong to the source."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.access.sources import make_source
from agentgym_rl.envs.access.workers import WorkersEnvSource
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError, EnvError
from agentgym_rl.types import StepResult, Task

_PARENT = """
import asyncio
from agentgym_rl.envs.access.workers import WorkersEnvSource

async def main():
    async with WorkersEnvSource("fakes:CountingEnv", num_workers=2) as source:
        print(await source.tasks("train") and "ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def play(source: EnvSource, index: int) -> list[StepResult]:
    results = list[StepResult]()
    async with await source.open() as env:
        await env.reset(Task("counting", "train", index))
        while not results or not results[-1].is_last:
            results.append(await env.step("add 1"))
    return results


async def test_episodes_are_those_of_this_process():
    async with (
        WorkersEnvSource("fakes:CountingEnv", num_workers=2) as workers,
        LocalEnvSource("fakes:CountingEnv") as local,
    ):
        assert await workers.spec() == await local.spec()
        assert await workers.tasks("train") == await local.tasks("train")
        played = await asyncio.gather(*(play(workers, index) for index in range(8)))
        assert played == [await play(local, index) for index in range(8)]
    with pytest.raises(EnvError, match="not running"):
        await workers.open()


async def test_what_cannot_be_started_says_why():
    for env, options, complaint in (
        ("no_such_env", {}, "unknown environment 'no_such_env'"),
        ("fakes:CountingEnv", {"speed": 3}, "no option 'speed'"),
    ):
        with pytest.raises(ValueError, match=complaint):
            async with WorkersEnvSource(env, num_workers=1, options=options):
                raise AssertionError("it started")


@pytest.mark.long
def test_the_workers_end_with_a_killed_parent():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        family = psutil.Process(parent.pid).children(recursive=True)
        assert len(family) >= 3, "a server and two workers"
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family):
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.1)


def test_workers_are_of_this_machine():
    with pytest.raises(ConfigError, match=r"env.workers=2 .* remove one"):
        make_source(EnvConfig(url="http://127.0.0.1:1", workers=2))
    assert isinstance(make_source(EnvConfig(workers=2)), WorkersEnvSource)
