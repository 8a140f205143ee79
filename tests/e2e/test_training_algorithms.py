"""Every online algorithm in a whole run, killed and resumed: the run that never stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import read_json_lines
from commands import Kill
from training_runs import RECIPE, go_on, is_the_same_run, metrics_of, succeeded, train

pytestmark = pytest.mark.slow

RUNS = {
    "ppo with its own critic": [
        "algorithm.type=ppo",
        "algorithm.critic_lr=1e-3",
        "algorithm.critic_warmup_steps=2",
        "credit.truncated=bootstrap",
        "training.epochs_per_step=2",
    ],
    "ppo with a shared critic and a reference": [
        "algorithm.type=ppo",
        "algorithm.critic=shared",
        "kl.coef=0.01",
    ],
    "rloo round by round with a divergence in the reward": [
        "algorithm.type=rloo",
        "algorithm.level=round",
        "credit.discount=0.9",
        "kl.coef=0.01",
        "kl.place=reward",
        "kl.estimator=k1",
    ],
    "reinforce++ without groups": [
        "algorithm.type=reinforce_pp",
        "algorithm.group_size=1",
        "training.tasks_per_step=8",
    ],
    "gigpo with refills and an adaptive horizon": [
        "algorithm.type=gigpo",
        "rollout.max_refills=2",
        "rounds.type=adaptive",
        "rounds.rounds=[2,3,4]",
        "rounds.window=1",
    ],
    "grpo with importance weights, masks and stages": [
        "policy_loss.importance_cap=2",
        "policy_loss.aggregation=constant",
        "policy_loss.entropy_coef=0.01",
        "policy_loss.entropy_target=2",
        "rollout.drop_without_spread=true",
        "rollout.rest_solved=2",
        "credit.truncated=mask",
        "rounds.type=scaling_inter_stepwise",
        "rounds.rounds=[1,2,3]",
        "rounds.steps_per_stage=2",
    ],
    "an algorithm, a schedule, a format and an engine of the user's own": [
        "algorithm.type=own_classes:Scaled",
        "algorithm.scale=0.5",
        "rounds.type=own_classes:Linear",
        "rounds.rounds=[1,3]",
        "rounds.steps=5",
        "agent.format=own_classes:Shouting",
        "engine.type=own_classes:Wrapped",
    ],
}


@pytest.mark.long  # test_training_run.py kills a run of GRPO always
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_is_the_run_that_never_stopped(name: str, tmp_path: Path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert succeeded(train(recipe, *RUNS[name], "--run-dir", whole))
    outcome = train(
        recipe, *RUNS[name], "--run-dir", killed, kill=Kill(r"rename .*episodes/\.train-000006")
    )
    assert outcome.status == -signal.SIGKILL, outcome.output
    assert succeeded(go_on(killed))
    assert is_the_same_run(killed, whole)
    lines = read_json_lines(whole / "metrics.jsonl")
    assert sum(line["train/grad_norm"] > 0 for line in lines) >= 4, "something was learned"
    assert all(line["train/logprob_diff"] < 1e-4 for line in lines)


@pytest.mark.long
def test_refills_and_the_adaptive_horizon_happen(tmp_path: Path):
    recipe, path = tmp_path / "small.toml", tmp_path / "run"
    recipe.write_text(RECIPE)
    name = "gigpo with refills and an adaptive horizon"
    assert succeeded(train(recipe, *RUNS[name], "--run-dir", path))
    lines = metrics_of(path)
    refilled = [line["rollout/groups_refilled"] for line in lines]
    assert sum(refilled) > 0 and max(refilled) <= 2 * 2
    for line in lines:
        assert line["rollout/episodes"] == 4 * (2 + line["rollout/groups_refilled"])
        assert line["rollout/groups_dropped"] == line["rollout/groups_without_spread"]
    horizons = [line["rollout/max_rounds"] for line in lines]
    assert horizons == sorted(horizons) and horizons[0] == 2 and horizons[-1] > 2


def test_a_step_with_nothing_to_learn_from_is_counted_and_changes_nothing(tmp_path: Path):
    recipe, path = tmp_path / "small.toml", tmp_path / "run"
    recipe.write_text(RECIPE)
    overrides = [
        "env.name=fakes:CountingEnv",
        "env.levels=[]",
        "warm_start.steps=0",
        "eval.tasks=0",
        "training.steps=2",
        "rounds.type=fixed",
        "rounds.rounds=1",
        "credit.truncated=mask",
    ]
    assert succeeded(train(recipe, *overrides, "--run-dir", path))
    for line in metrics_of(path):
        assert line["train/episodes_masked"] == line["rollout/episodes"]
        assert line["train/updates_skipped"] == 1.0
        assert line["train/grad_norm"] == 0.0
