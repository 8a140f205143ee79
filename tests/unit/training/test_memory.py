"""Memory over many steps: what a step made is gone when the next one has ended."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from agentgym_rl.config import (
    FixedRoundsConfig,
    GRPOConfig,
    PolicyLossConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
)
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.rollout.episode import TokenPolicy
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.make import rl_trainer
from agentgym_rl.training.run_parts import Listeners, RunEnv, RunParts
from engine_plays import endless_policy
from fake_engines import make_participants
from fakes import CountingEnv, fake_spec

NUM_STEPS = 100
EVERY = 20
PAYLOAD = 100_000


class CyclicEnv(CountingEnv):
    """Refers to itself, as simulators do: only the collector can free it."""

    spec: ClassVar[EnvSpec] = fake_spec("cyclic")

    def __init__(self) -> None:
        super().__init__()
        self.itself = self
        self.world = [[number] for number in range(50)]
        self.payload = bytearray(PAYLOAD)
        self.payload[::4096] = b"x" * len(self.payload[::4096])  # touched, so it is resident


@pytest.mark.long
@pytest.mark.parametrize("staleness", [0, 1])
async def test_objects_and_memory_stay_flat_over_the_steps(tmp_path: Path, staleness: int):
    config = RunConfig(
        algorithm=GRPOConfig(group_size=2),
        rounds=FixedRoundsConfig(rounds=2),
        training=TrainingConfig(steps=NUM_STEPS, tasks_per_step=2),
        rollout=RolloutConfig(
            max_tokens_per_round=4,
            max_tokens=64,
            max_staleness=staleness,
            drop_without_spread=False,
        ),
        policy_loss=PolicyLossConfig(importance_cap=2.0 * staleness),
    )
    objects, memory, process = list[int](), list[int](), psutil.Process()

    def count(metrics: Metrics) -> None:
        assert metrics["time/garbage_s"] >= 0
        if metrics["step"] % EVERY == 0:
            objects.append(len(gc.get_objects()))
            memory.append(process.memory_info().rss)

    policy = endless_policy()
    engine = NativeEngine(policy, config.engine)
    made = await make_participants(LocalEnvSource(CyclicEnv), engine)
    participants = replace(made, policy=TokenPolicy(engine, policy.renderer))
    trainer = rl_trainer(
        RunParts(
            config,
            policy,
            RunFolder(tmp_path),
            [RunEnv(CyclicEnv.spec.name, config, participants, CyclicEnv.tasks("train"))],
            listeners=Listeners(on_step=count),
        )
    )
    try:
        await trainer.train()
    finally:
        engine.close()
    # Without the collector it is 20,800 objects and 40 MB of 400 environments more.
    assert max(objects[1:]) - min(objects[1:]) < 2_000, objects
    assert memory[-1] - memory[1] < NUM_STEPS * 4 * PAYLOAD / 4, memory
