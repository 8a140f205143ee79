"""How long `agentgym bench env` measures."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import env_load
from env_load import MIN_STEPS, Load


async def test_a_slow_server_is_measured_until_there_are_steps_enough():
    load = Load(seconds=0.01)

    async def play() -> None:
        load.num_ready += 1
        while not load.is_over:
            await load.step(asyncio.sleep(0.005))

    elapsed, _, _ = await load.run([play()], psutil.Process(os.getpid()))
    assert len(load.latencies) >= MIN_STEPS
    assert elapsed >= 0.005 * MIN_STEPS


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(env_load, "MAX_LONGER_S", 0.2)
    load = Load(seconds=0.01)

    async def play() -> None:
        load.num_ready += 1
        while not load.is_over:
            await asyncio.sleep(0.05)

    elapsed, _, _ = await load.run([play()], psutil.Process(os.getpid()))
    assert load.latencies == [] and elapsed < 60
