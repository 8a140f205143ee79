"""What a trainer makes of a step's groups, without episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import RunConfig, TrainingConfig
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.algorithms.base import Batch
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.collect.collection import Collected
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.make import rl_trainer
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Group
from engine_plays import endless_policy
from fake_engines import ScriptedEngine, make_participants
from fakes import CountingEnv


async def test_the_learning_rate_falls_with_the_plan_though_groups_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    training = TrainingConfig(steps=4, tasks_per_step=2, updates_per_step=2, epochs_per_step=3)
    config = RunConfig(training=training)
    participants = await make_participants(LocalEnvSource(CountingEnv), ScriptedEngine([]))
    tasks = CountingEnv.tasks("train")
    env = RunEnv("counting", config, participants, tasks)
    trainer = rl_trainer(RunParts(config, endless_policy(), RunFolder(tmp_path), [env]))
    planned = list[int]()
    monkeypatch.setattr(Learner, "schedule_after", lambda _, num: planned.append(num))
    monkeypatch.setattr(Learner, "score", lambda *_: [])
    monkeypatch.setattr(GRPO, "advantages", lambda *_: Batch([], {}))
    for step in (1, 3, 4):  # step 2 had nothing to learn from
        trainer.learn(step, Collected([], [Group(tasks[0], ())]))
    assert planned == [0, 12, 18]
    assert config.num_updates == 24
