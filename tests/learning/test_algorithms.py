"""Every algorithm must teach a model: held-out success on BabyAI rises, from the same warm start.

The tiny model, minutes on a CPU. What the algorithms reach over longer runs and
several seeds is in docs/results/algorithms.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentgym_rl.config import RunConfig, dump_config, load_config
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.experiment import supervised_config, train
from agentgym_rl.runs.folder import RunFolder

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ONLINE_GAIN = 0.3
"""What reinforcement learning must add in these few steps."""


def _train(config: RunConfig, path: Path) -> RunFolder:
    run = RunFolder(path)
    run.create(dump_config(config))
    asyncio.run(train(config, run))
    return run


def _gain(recipe: str, overrides: Sequence[str], path: Path) -> tuple[float, float]:
    """Return held-out success before and after."""
    run = _train(load_config(recipe, overrides), path)
    before, after = (report.overall.success_rate for report in read_reports(run))
    return before, after


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model after the warm start."""
    config = supervised_config(load_config("small/babyai-scaling-inter", ["eval.tasks=0"]))
    return _train(config, tmp_path_factory.mktemp("start") / "run").model


@pytest.fixture(scope="module")
def explored(
    start: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunFolder, float, float]:
    """A run of AgentEvol, which the preferences of DPO come from; success before and after."""
    overrides = ["warm_start.steps=0", f"model.path={start}", "training.steps=4", "eval.every=0"]
    run = _train(
        load_config("small/babyai-agentevol", overrides), tmp_path_factory.mktemp("evol") / "run"
    )
    before, after = (report.overall.success_rate for report in read_reports(run))
    return run, before, after


@pytest.mark.parametrize(
    "recipe",
    [
        "small/babyai-scaling-inter",
        "small/babyai-rloo",
        "small/babyai-reinforce-pp",
        "small/babyai-ppo",
    ],
)
def test_reinforcement_learning_raises_success(recipe: str, start: Path, tmp_path: Path):
    overrides = [
        *("warm_start.steps=0", f"model.path={start}", "eval.every=0"),
        *("training.steps=24", "rounds.steps_per_stage=8"),
    ]
    before, after = _gain(recipe, overrides, tmp_path / "run")
    assert after - before >= ONLINE_GAIN, f"held-out success went from {before:.0%} to {after:.0%}"


def test_agentevol_raises_success(explored: tuple[RunFolder, float, float]):
    _, before, after = explored
    assert after - before >= 0.2, f"held-out success went from {before:.0%} to {after:.0%}"


def test_dpo_raises_success(explored: tuple[RunFolder, float, float], start: Path, tmp_path: Path):
    run, _, _ = explored
    overrides = [f"model.path={start}", f"algorithm.data={run.path}"]
    before, after = _gain("small/babyai-dpo", overrides, tmp_path / "run")
    assert after - before >= 0.1, f"held-out success went from {before:.0%} to {after:.0%}"


def test_sft_raises_success(start: Path, tmp_path: Path):
    overrides = [f"model.path={start}", "training.steps=60", "training.lr=1e-3"]
    before, after = _gain("small/babyai-sft", overrides, tmp_path / "run")
    assert after - before >= 0.1, f"held-out success went from {before:.0%} to {after:.0%}"
