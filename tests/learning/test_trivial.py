"""Every method solves a trivial environment within seconds; test_algorithms.py is the real thing.

A lamp shows a colour, and the agent has to say which of four words goes with it. A few updates on
demonstrations teach it the words, and which one is right half of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentgym_rl.config import dump_config, load_config
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.experiment import train
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import StepResult, Task

ANSWERS = {"red": "stop", "green": "go", "amber": "wait", "blue": "turn"}

RECIPE = f"""
[env]
name = "{Path(__file__).stem}:Lamp"

[model]
path = "tiny"
tiny = {{ vocab_size = 300, hidden_size = 32, num_layers = 1 }}

[agent]
format = "direct"
include_instructions = false

[rollout]
max_tokens_per_round = 8
max_tokens = 64

[warm_start]
steps = 10
num_demos = 8
batch_size = 8
lr = 1e-2

[rounds]
rounds = 1

[training]
steps = 24
tasks_per_step = 8
lr = 4e-3
warmup_steps = 0

[eval]
tasks = 40

[checkpoint]
every = 100
"""


class Lamp(Environment):
    """One round, four answers."""

    spec = EnvSpec(
        name="lamp",
        summary="Say the word that goes with a colour.",
        instructions="Say the word that goes with the colour.",
        example_action="go",
        splits=("train", "test"),
        categories=tuple(ANSWERS),
        max_rounds=1,
    )

    def __init__(self) -> None:
        self._index = 0

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        start = 100 * (split == "test")
        colours = list(ANSWERS)
        return [
            Task("lamp", split, start + number, category=colours[number % 4])
            for number in range(40)
        ]

    def reset(self, task: Task) -> str:
        self._index = task.index
        return f"The lamp is {list(ANSWERS)[task.index % 4]}."

    def step(self, action: str) -> StepResult:
        is_right = action == list(ANSWERS.values())[self._index % 4]
        return StepResult(
            "Right." if is_right else "Wrong.",
            reward=float(is_right),
            terminated=True,
            success=is_right,
            valid_action=action in ANSWERS.values(),
        )

    def expert_action(self) -> str:
        return list(ANSWERS.values())[self._index % 4]


EXPLORE = "policy_loss.entropy_coef=0.02"


@pytest.mark.parametrize(
    ("algorithm", "overrides"),
    [
        ("grpo", [EXPLORE]),
        pytest.param("rloo", [EXPLORE], marks=pytest.mark.long),
        pytest.param("reinforce_pp", [EXPLORE], marks=pytest.mark.long),
        pytest.param("gigpo", [EXPLORE], marks=pytest.mark.long),
        pytest.param("ppo", [EXPLORE, "algorithm.critic_lr=1e-2"], marks=pytest.mark.long),
        pytest.param("agentevol", ["training.steps=12"], marks=pytest.mark.long),
    ],
)
def test_a_trivial_environment_is_solved(algorithm: str, overrides: list[str], tmp_path: Path):
    recipe = tmp_path / "lamp.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    config = load_config(str(recipe), [f"algorithm.type={algorithm}", *overrides])
    run = RunFolder(tmp_path / "run")
    run.create(dump_config(config))
    asyncio.run(train(config, run))
    before, after = (report.overall.success_rate for report in read_reports(run))
    assert before < 0.7 and after > 0.85, f"success went from {before:.0%} to {after:.0%}"
