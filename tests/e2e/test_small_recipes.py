"""The small recipes run, for a step; tests/learning watches those of BabyAI learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import packaged_recipes
from training_runs import metrics_of, succeeded, train

pytestmark = pytest.mark.slow

QUICK = (
    "training.steps=1",
    "checkpoint.every=1",
    "eval.tasks=2",
    "eval.every=0",
    "model.tiny.hidden_size=32",
)
ONLINE = (*QUICK, "training.tasks_per_step=2", "warm_start.steps=2", "warm_start.num_demos=4")
SUPERVISED = (*QUICK, "algorithm.num_demos=4", "training.warmup_steps=0")
PPO = ("algorithm.type=ppo", "algorithm.critic_lr=1e-3")


def run(path: Path, recipe: str, *overrides: str) -> None:
    """Train, and look at what the one step left."""
    assert succeeded(train(recipe, *overrides, "--run-dir", path))
    assert [line["step"] for line in metrics_of(path)] == [1]
    assert (path / "model").is_dir()


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("small/babyai-grpo", ()),
        pytest.param("small/textcraft-grpo", (), marks=pytest.mark.long),
        pytest.param("small/textcraft-grpo", PPO, marks=pytest.mark.long),
        pytest.param("small/textcraft-scaling-inter", (), marks=pytest.mark.long),
        pytest.param("small/searchqa-grpo", (), marks=pytest.mark.long),
        pytest.param("small/two-envs", (), marks=pytest.mark.long),
        pytest.param("small/sciworld-grpo", ("algorithm.group_size=2",), marks=pytest.mark.long),
        pytest.param("small/miniwob", (), marks=pytest.mark.long),
    ],
)
def test_online_recipes_run(tmp_path: Path, recipe: str, overrides: tuple[str, ...]):
    run(tmp_path / "run", recipe, *ONLINE, *overrides)


@pytest.mark.long
def test_errands_on_web_sites_begin_with_what_questions_taught(tmp_path: Path):
    # Whole errands are longer than the tiny model's context.
    few = (*ONLINE, "algorithm.group_size=2", "agent.include_instructions=false")
    run(tmp_path / "first", "small/web", *few)
    begin = ("warm_start.steps=0", f"model.path={tmp_path / 'first' / 'model'}")
    run(tmp_path / "second", "small/web-errands", *few, *begin, "env.options.max_chars=600")


@pytest.mark.parametrize(
    "recipe",
    ["small/textcraft-sft", pytest.param("small/sciworld-sft", marks=pytest.mark.long)],
)
def test_supervised_recipes_run(tmp_path: Path, recipe: str):
    run(tmp_path / "run", recipe, *SUPERVISED, "training.lr_schedule=constant")


@pytest.mark.long
def test_preferences_are_learned_from_what_agentevol_explored(tmp_path: Path):
    explored = tmp_path / "explored"
    # The whole warm start, so that some attempts succeed and others do not.
    explore = ("training.steps=1", "training.tasks_per_step=16", "eval.tasks=0")
    run(explored, "small/textcraft-agentevol", *explore)
    prefer = (f"model.path={explored / 'warm_start' / 'model'}", f"algorithm.data={explored}")
    run(tmp_path / "run", "small/textcraft-dpo", *QUICK, "training.warmup_steps=0", *prefer)


def test_every_small_recipe_is_run_by_a_test():
    here = Path(__file__)
    learning = here.parents[1] / "learning" / "test_algorithms.py"
    text = here.read_text(encoding="utf-8") + learning.read_text(encoding="utf-8")
    small = [name for name in packaged_recipes() if name.startswith("small/")]
    assert [name for name in small if f'"{name}"' not in text] == []
