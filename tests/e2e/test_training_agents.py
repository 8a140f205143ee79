"""Training runs of agents with all parts at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import RunConfig, TinyModelConfig, dump_config
from agentgym_rl.experiment import train
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.tiny import build_tiny_model
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import RunFolder
from tool_templates import tool_tokenizer

pytestmark = pytest.mark.slow

TINY = {
    "vocab_size": 320,
    "hidden_size": 32,
    "num_layers": 1,
}
RUN: dict[str, object] = {
    "env": {"name": "fakes:CountingEnv", "split": "train", "eval_split": "train"},
    "model": {"device": "cpu", "tiny": TINY},
    "agent": {
        "format": "react",
        "include_instructions": False,
        "past_thoughts": "strip",
        "planning": {"enabled": True, "every": 2},
        "reflection": {"tries": 2},
        "memory": {"type": "summary", "rounds": 2},
        "train": {"summary": 0.0, "plan": 0.5},
    },
    "rollout": {"max_tokens_per_round": 24, "max_tokens": 900},
    "rounds": {"type": "fixed", "rounds": 4},
    "training": {"steps": 2, "tasks_per_step": 2},
    "warm_start": {"steps": 20, "num_demos": 8},
    "eval": {"tasks": 2, "every": 0},
}  # fmt: skip
NOT_EVALUATED: dict[str, object] = {"eval": {"tasks": 0}}


@pytest.mark.parametrize(
    "changes",
    [
        NOT_EVALUATED | {"algorithm": {"type": "grpo", "group_size": 4, "level": "round"}},
        pytest.param(
            NOT_EVALUATED | {"algorithm": {"type": "gigpo", "group_size": 4}},
            marks=pytest.mark.long,
        ),
        pytest.param(
            NOT_EVALUATED
            | {"algorithm": {"type": "ppo", "group_size": 2}, "credit": {"truncated": "bootstrap"}},
            marks=pytest.mark.long,
        ),
        pytest.param(
            NOT_EVALUATED | {"algorithm": {"type": "agentevol", "group_size": 2}},
            marks=pytest.mark.long,
        ),
    ],
    ids=["grpo", "gigpo", "ppo", "agentevol"],
)
async def test_all_parts_train_together(changes: dict[str, object], tmp_path: Path):
    config = RunConfig.model_validate(RUN | changes)
    run = RunFolder(tmp_path / "run")
    run.create(dump_config(config))
    await train(config, run)
    lines = list(run.read_metrics())
    assert len(lines) == 2
    assert all(line["rollout/tokens_plan"] > 0 for line in lines)
    # Before its first update the learner agrees with the engine in every context.
    if "train/logprob_diff" in lines[0]:
        assert lines[0]["train/logprob_diff"] < 1e-4
    episodes = read_episodes(run.episodes / "train-000001.parquet")
    assert any(len(episode.samples) > 1 for episode in episodes)
    assert any(sample.try_index == 1 for episode in episodes for sample in episode.samples)


@pytest.mark.long
async def test_a_model_whose_template_shows_tools_trains_with_them(tmp_path: Path):
    tokenizer = tool_tokenizer("tiny")
    model = build_tiny_model(TinyModelConfig.model_validate(TINY), tokenizer, seed=0)
    Policy(model, tokenizer, ChatRenderer(tokenizer)).save(tmp_path / "model")
    changes = {
        "model": {"device": "cpu", "path": str(tmp_path / "model")},
        "agent": {"format": "function_call"},
        "algorithm": {"type": "ppo", "group_size": 2},
        "credit": {"truncated": "bootstrap"},
        "rollout": {"max_tokens_per_round": 24, "max_tokens": 1000},
    }
    config = RunConfig.model_validate(RUN | changes)
    run = RunFolder(tmp_path / "run")
    run.create(dump_config(config))
    await train(config, run)
    lines = list(run.read_metrics())
    assert lines[0]["train/logprob_diff"] < 1e-4
    episodes = list(read_episodes(run.episodes / "train-000001.parquet"))
    assert episodes
    for episode in episodes:
        sample = episode.samples[0]
        text = str(tokenizer.decode(sample.token_ids))
        assert "<tools>" not in episode.messages[0].content and text.count("<tools>") == 1
        roles = [message.role for message in episode.messages[::2]]
        assert roles == ["user"] + ["tool"] * (len(roles) - 1)
        assert text.count("<tool_response>\n") == len(roles) - 1
