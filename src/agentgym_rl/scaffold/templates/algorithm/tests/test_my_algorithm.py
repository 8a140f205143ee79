"""The estimate by hand, and one small step of training on a CPU."""

from __future__ import annotations

from pathlib import Path

from my_algorithm.algorithm import MyAlgorithm, weighed

import agentgym_rl as ag

SMALL = {
    "training.steps": 1,
    "training.tasks_per_step": 2,
    "algorithm.group_size": 2,
    "warm_start.steps": 0,
    "warm_start.num_demos": 4,
    "eval.tasks": 0,
    "rounds": {"type": "fixed", "rounds": 2},
}


def test_only_negative_advantages_are_weighed() -> None:
    assert weighed((1.0, -2.0, 0.0), 0.25) == (1.0, -0.5, 0.0)


def test_it_trains_with_its_own_setting(tmp_path: Path) -> None:
    settings = SMALL | {"algorithm.failure_weight": 0.25}
    run = ag.train("quickstart", settings, algorithm=MyAlgorithm, run_dir=tmp_path / "run")
    assert run.metrics[0]["train/failure_weight"] == 0.25
