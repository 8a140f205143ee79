"""A run on two environments: killed and resumed it is the run that never stopped, and it can be
evaluated on both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentgym_rl as ag
from commands import Command, Kill
from training_runs import RECIPE, go_on, is_the_same_run, metrics_of, succeeded, train

pytestmark = pytest.mark.slow

ENVS = """
[envs.easy]
name = "babyai"
levels = ["GoToRedBallNoDists"]
weight = 2
rounds = { type = "adaptive", rounds = [2, 3], window = 1 }

[envs.textcraft]
eval_split = "train"
categories = ["depth 1"]
options = { num_distractors = 1 }
rollout = { max_tokens_per_round = 20 }
"""
FEW = (
    "training.steps=3",
    "training.tasks_per_step=3",
    "algorithm.group_size=2",
    "warm_start.steps=1",
    "warm_start.num_demos=6",
    "eval.tasks=1",
    "rollout.follow_learnable=0.8",
    "rollout.rest_solved=1",
    "credit.normalize_per_env=true",
)


@pytest.mark.long
def test_a_killed_run_on_two_environments_resumes_exactly_and_is_evaluated(tmp_path: Path):
    recipe, whole, killed = tmp_path / "two.toml", tmp_path / "whole", tmp_path / "killed"
    head, _, rest = RECIPE.partition("[env]")
    recipe.write_text(head + ENVS + rest[rest.index("[model]") :])
    assert succeeded(train(recipe, *FEW, "--run-dir", whole))
    kill = Kill(r"open .*killed/metrics\.jsonl", 3)  # a checkpoint has two steps
    assert train(recipe, *FEW, "--run-dir", killed, kill=kill).status == -9
    assert succeeded(go_on(killed))
    assert is_the_same_run(whole, killed)

    lines = metrics_of(whole)
    for line in lines:
        own = {label: line.get(f"rollout/{label}/episodes", 0) for label in ("easy", "textcraft")}
        assert sum(own.values()) == line["rollout/episodes"] == 6
        shares = [line[f"rollout/{label}/share_of_tasks"] for label in own]
        assert sum(shares) == pytest.approx(1) and min(shares) > 0.05
    rates = [lines[-1][f"eval/{label}/success_rate"] for label in ("easy", "textcraft")]
    assert lines[-1]["eval/success_rate"] == pytest.approx(sum(rates) / 2)
    assert "| textcraft | 3 rounds | 1 |" in (whole / "eval" / "step-000003.md").read_text()
    reports = ag.Run(whole).evaluations
    assert [(report.step, report.env) for report in reports] == [
        (step, env) for step in (0, 3) for env in ("easy", "textcraft")
    ]

    out = tmp_path / "eval"
    words = ("eval", whole, "--split", "train", "--limit", "1", "--rounds", "2", "--out", out)
    assert succeeded(Command(*words).wait())
    found = json.loads((out / "report.json").read_text())["reports"]
    assert [report["env"] for report in found] == ["babyai", "textcraft"]
    settings = json.loads((out / "easy" / "evaluation.json").read_text())["config"]
    assert settings["env.levels"] == ["GoToRedBallNoDists"]
