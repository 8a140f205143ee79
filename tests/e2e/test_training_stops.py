"""Runs that a signal stops: what they save, how they end, and that resuming loses nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import RunFolder
from commands import Command, Kill, Outcome
from training_runs import (
    RECIPE,
    STOP_AT,
    episodes_of,
    go_on,
    is_the_same_run,
    metrics_of,
    succeeded,
    train,
)

pytestmark = pytest.mark.slow

STATUS = 128 + signal.SIGTERM


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recipe") / "small.toml"
    file.write_text(RECIPE)
    return file


def terminated(outcome: Outcome, path: Path, *, step: int) -> bool:
    """Whether the run ended as SIGTERM ends one, said how to resume it, and saved `step`."""
    assert outcome.status == STATUS, outcome.output
    assert "Traceback" not in outcome.output, outcome.output
    assert f"step {step} is saved; resume with" in outcome.stderr
    assert f"agentgym train --run-dir {path} --resume" in outcome.stderr
    assert RunFolder(path).latest_checkpoint() == RunFolder(path).checkpoint_path(step).resolve()
    assert [line["step"] for line in metrics_of(path)] == list(range(1, step + 1))
    return True


@pytest.mark.long
def test_a_step_that_is_being_stored_is_finished_and_saved(recipe: Path, tmp_path: Path):
    whole, path = tmp_path / "whole", tmp_path / "stopped"
    assert succeeded(train(recipe, "--run-dir", whole))
    # The step evaluates, too, which is no reason to lose it.
    kill = Kill(r"train-000004", with_signal=signal.SIGTERM)
    overrides = ("checkpoint.every=8", "--run-dir", path)
    assert terminated(train(recipe, *overrides, kill=kill), path, step=4)
    assert succeeded(go_on(path, "checkpoint.every=2"))
    assert is_the_same_run(path, whole)


@pytest.mark.long
def test_episodes_under_way_are_given_up_and_the_step_before_is_saved(recipe: Path, tmp_path: Path):
    whole, path, marker = tmp_path / "whole", tmp_path / "stopped", tmp_path / STOP_AT
    # Which tasks rest changes while a step is collected: the checkpoint must not see it.
    words = (
        recipe,
        "env.name=training_runs:StoppingBabyAI",
        "rollout.rest_solved=2",
        "eval.tasks=0",
        "training.steps=4",
    )
    assert succeeded(train(*words, "--run-dir", whole))
    marker.write_text("44")  # 24 demonstrations, then 8 episodes a step: in the third
    command = Command("train", *words, "--run-dir", path, folder=tmp_path)
    assert terminated(command.wait(), path, step=2)
    marker.unlink()
    assert succeeded(go_on(path))
    assert metrics_of(path) == metrics_of(whole)
    assert episodes_of(path) == episodes_of(whole)


def test_a_second_signal_ends_it_at_once(recipe: Path, tmp_path: Path):
    path = tmp_path / "stopped"
    (tmp_path / STOP_AT).write_text("36")  # in the second step; the first is to be saved
    words = ("env.name=training_runs:StoppingBabyAI", "checkpoint.every=8", "eval.tasks=0")
    kill = Kill(r"os\.mkdir .*\.writing-1", with_signal=signal.SIGTERM)
    command = Command("train", recipe, *words, "--run-dir", path, folder=tmp_path, kill=kill)
    assert command.wait().status == -signal.SIGTERM
    assert RunFolder(path).latest_checkpoint() is None


@pytest.mark.long
def test_supervised_learning_saves_its_last_step(recipe: Path, tmp_path: Path):
    whole, path = tmp_path / "whole", tmp_path / "stopped"
    words = (recipe, "algorithm.type=sft", "algorithm.num_demos=24", "warm_start.steps=0")
    words = (*words, "checkpoint.every=8", "eval.tasks=0")
    assert succeeded(train(*words, "--run-dir", whole))
    third_line = Kill(r"open .*stopped/metrics\.jsonl", 3, signal.SIGTERM)
    assert terminated(train(*words, "--run-dir", path, kill=third_line), path, step=3)
    assert succeeded(go_on(path))
    assert metrics_of(path) == metrics_of(whole)
    weights = "model/model.safetensors"
    assert (path / weights).read_bytes() == (whole / weights).read_bytes()


@pytest.mark.long
def test_agentevol_saves_its_last_iteration(recipe: Path, tmp_path: Path):
    whole, path = tmp_path / "whole", tmp_path / "stopped"
    words = (recipe, "algorithm.type=agentevol", "algorithm.num_demos=4", "training.steps=3")
    words = (*words, "checkpoint.every=8", "eval.tasks=0")
    assert succeeded(train(*words, "--run-dir", whole))
    kill = Kill(r"train-000002", with_signal=signal.SIGTERM)
    assert terminated(train(*words, "--run-dir", path, kill=kill), path, step=2)
    assert succeeded(go_on(path))
    assert metrics_of(path) == metrics_of(whole)
