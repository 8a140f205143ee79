"""AgentEvol: which episodes are kept, and that iterations end with data and a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import (
    AgentConfig,
    AgentEvolConfig,
    FixedRoundsConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
)
from agentgym_rl.config.sections import CheckpointConfig
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.envs.demos.demonstration import demonstrate
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import load_pretrained
from agentgym_rl.rollout.episode import Participants, TokenPolicy
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.agentevol import AgentEvolTrainer, imitated, newest_per_task
from agentgym_rl.training.algorithms.episode_tokens import actions_of
from agentgym_rl.training.data.conversation_files import read_conversations
from agentgym_rl.training.data.conversations import from_demonstration, from_episode
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.make import agentevol_trainer
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.training.sft import fitting_samples, negative_logprob
from agentgym_rl.types import (
    Episode,
    Message,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)
from chat_families import small_policy
from fakes import CountingEnv

AGENT = AgentConfig(format="direct", include_instructions=False)
TASKS = [task for task in CountingEnv.tasks("train") if task.index < 3]


def make_episode(index: int, sample_index: int) -> Episode:
    return Episode(
        task=Task("counting", "train", index),
        sample_index=sample_index,
        stop_reason=StopReason.SUCCESS,
        reward=1.0,
        success=True,
        rounds=(),
        messages=(),
        samples=(),
        seconds=0.0,
    )


def numbers(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    return [(episode.task.index, episode.sample_index) for episode in episodes]


def test_the_newest_successes_of_each_task_are_kept_in_order():
    episodes = [make_episode(*pair) for pair in [(1, 0), (2, 0), (1, 1), (1, 2), (3, 0)]]
    assert numbers(newest_per_task(episodes, 1)) == [(2, 0), (1, 2), (3, 0)]
    assert numbers(newest_per_task(episodes, 2)) == [(2, 0), (1, 1), (1, 2), (3, 0)]
    assert newest_per_task(episodes, 0) == episodes
    assert newest_per_task([], 2) == []


def test_only_the_try_that_succeeded_and_the_reflections_before_it_are_imitated():
    # Two tries: the first fails (thought and action, then a reflection), the second succeeds.
    prompt, action, reflection = SegmentKind.PROMPT, SegmentKind.ACTION, SegmentKind.REFLECTION
    failed = Sample(
        token_ids=(1, 2, 3, 4, 5, 6),
        loss_mask=(0, 1, 1, 0, 1, 1),
        logprobs=(0.0,) * 6,
        rewards=(0.0,) * 6,
        segments=(
            Segment(prompt, 0, 1, 0),
            Segment(action, 1, 3, 0),
            Segment(SegmentKind.OBSERVATION, 3, 4, 0),
            Segment(reflection, 4, 6, 1),
        ),
        version=0,
        try_index=0,
    )
    solved = replace(failed, token_ids=(1, 7), loss_mask=(0, 1), logprobs=(0.0,) * 2)
    solved = replace(solved, rewards=(0.0, 1.0), segments=(Segment(action, 1, 2, 1),), try_index=1)
    messages = [("user", "q"), ("assistant", "a"), ("user", "?"), ("assistant", "r")]
    messages += [("user", "q"), ("assistant", "b")]
    episode = replace(
        make_episode(1, 0),
        samples=(failed, solved),
        messages=tuple(Message(*message) for message in messages),
    )
    first, last = imitated(episode)
    assert first.loss_mask == (0, 0, 0, 0, 1, 1)
    assert last == solved
    conversation = from_episode(episode, imitated(episode))
    assert conversation.is_learned == (False, False, False, True, False, True)


def make_config(**changes: object) -> RunConfig:
    algorithm = AgentEvolConfig(**{"group_size": 2, "batch_size": 2, **changes})
    return RunConfig(
        agent=AGENT,
        algorithm=algorithm,
        rounds=FixedRoundsConfig(rounds=2),
        rollout=RolloutConfig(max_tokens_per_round=4, max_tokens=128),
        checkpoint=CheckpointConfig(every=1),
        training=TrainingConfig(steps=2, tasks_per_step=2, lr=5e-3, epochs_per_step=2),
    )


async def run_iterations(config: RunConfig, run: RunFolder, *, num_demos: int) -> None:
    agent, policy = Agent(AGENT, CountingEnv.spec), small_policy("qwen3")
    shown = [demonstrate(CountingEnv(), task, max_rounds=5) for task in TASKS[:num_demos]]
    demos = [
        conversation
        for demo in shown
        if demo is not None
        for conversation in from_demonstration(demo, agent)
    ]
    run.create("")
    engine = NativeEngine(policy, config.engine)
    try:
        async with LocalEnvSource("fakes:CountingEnv") as source:
            participants = Participants(source, agent, TokenPolicy(engine, policy.renderer))
            env = RunEnv("counting", config, participants, TASKS)
            trainer = agentevol_trainer(RunParts(config, policy, run, [env]), demos)
            await trainer.train(after=trainer.restore())
    finally:
        engine.close()


async def test_every_iteration_leaves_its_data_and_its_model(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    await run_iterations(make_config(), run, num_demos=2)
    lines = run.read_metrics()
    assert [line["step"] for line in lines] == [1, 2]
    for step, line in enumerate(lines, start=1):
        folder = run.iteration_path(step)
        conversations = list(read_conversations(folder / "conversations.jsonl"))
        assert len(conversations) == line["train/episodes_kept"] + 2
        assert load_pretrained(folder / "model").tokenizer is not None
        # two passes over the data in updates of two
        assert line["train/updates"] == 2 * -(-len(conversations) // 2)
        assert line["train/demos"] == 2.0 and line["train/grad_norm"] > 0
        assert {"rollout/success_rate", "rollout/max_rounds", "train/loss"} <= line.keys()
    assert lines[1]["train/loss"] < lines[0]["train/loss"]


@pytest.mark.parametrize("restart", ["previous", "base"])
async def test_an_iteration_learns_from_where_the_recipe_says(restart: str, tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    config = make_config(restart=restart)
    await run_iterations(config, run, num_demos=3)
    assert run.base_weights.exists() == (restart == "base")
    models = [load_pretrained(run.iteration_path(step) / "model") for step in (1, 2)]
    begin = small_policy("qwen3") if restart == "base" else models[0]
    learner = Learner(begin, config.training, temperature=1.0)
    if restart == "previous":
        learner.load_state(torch.load(run.checkpoint_path(1) / "learner.pt", weights_only=True))
    data = read_conversations(run.iteration_path(2) / "conversations.jsonl")
    samples = [sample for _, sample in fitting_samples(list(data), begin, max_tokens=128)]
    trainer = AgentEvolTrainer.__new__(AgentEvolTrainer)
    trainer._evol, trainer._config = config.algorithm, config
    for batch in trainer._batches(2, samples):
        learner.update(batch, negative_logprob)
    for ours, theirs in zip(begin.model.parameters(), models[1].model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


async def test_the_drift_of_an_iteration_is_from_the_policy_that_explored(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    await run_iterations(make_config(), run, num_demos=2)
    (part, *_) = sorted(run.episodes.glob("train-*.parquet"))
    samples = [sample for episode in read_episodes(part) for sample in episode.samples]
    model = load_pretrained(run.iteration_path(1) / "model").model
    with torch.no_grad():
        now = action_logprobs(model, samples, temperature=1.0).logprobs_A
    before = torch.tensor([lp for s in samples for lp in actions_of(s, s.logprobs)])
    expected = ((now - before).exp() - 1 - (now - before)).mean()
    assert run.read_metrics()[0]["train/kl"] == pytest.approx(float(expected), rel=1e-3)
    assert expected > 0


async def test_an_iteration_without_success_learns_nothing_and_says_so(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    await run_iterations(make_config(), run, num_demos=0)
    for line in run.read_metrics():
        # An untrained model writes no action.
        assert line["rollout/success_rate"] == line["train/episodes_kept"] == 0.0
        assert (
            line["train/updates"] == line["train/kl"] == 0.0
            and line["train/updates_skipped"] == 1.0
        )
    assert (run.iteration_path(2) / "conversations.jsonl").read_text() == ""


def test_earlier_successes_are_kept():
    trainer = AgentEvolTrainer.__new__(AgentEvolTrainer)
    trainer._evol, trainer._kept = AgentEvolConfig(), []
    failed = replace(make_episode(2, 0), success=False)
    assert trainer._keep([make_episode(1, 0), failed]) == 1
    assert trainer._keep([make_episode(3, 0)]) == 1
    assert [episode.task.index for episode in trainer._kept] == [1, 3]
