"""What a trainer makes of a step's groups, without episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import KLConfig, RunConfig
from agentgym_rl.envs.client.local import LocalEnvSource
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.collection import Collected
from agentgym_rl.training.learner import Learner
from agentgym_rl.training.trainer import NOTHING_LEARNED, RLTrainer
from engine_plays import endless_policy
from fake_engines import ScriptedEngine, make_actors
from fakes import CountingEnv


async def test_the_reference_is_renewed_when_due_though_nothing_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = RunConfig(kl=KLConfig(coef=0.1, refresh_every=2))
    actors = await make_actors(LocalEnvSource(CountingEnv), ScriptedEngine([]))
    tasks = CountingEnv.tasks("train")
    trainer = RLTrainer(config, endless_policy(), RunFolder(tmp_path), actors=actors, tasks=tasks)
    step, renewed = 0, list[int]()
    monkeypatch.setattr(Learner, "refresh_reference", lambda _: renewed.append(step))
    for step in range(1, 6):
        assert trainer.learn(step, Collected([], [])) == NOTHING_LEARNED
    assert renewed == [2, 4]
