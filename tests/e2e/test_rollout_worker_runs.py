"""Whole runs whose episodes are played by rollout workers: the same ones; workers are killed."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

import pytest

import agentgym_rl as ag
from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.folder import read_json_lines
from agentgym_rl.types import StepResult, Task
from fakes import CountingEnv
from training_runs import RECIPE, episodes_of, metrics_of

pytestmark = pytest.mark.slow

SETTINGS: dict[str, object] = {
    "warm_start.steps": 2,
    "warm_start.num_demos": 8,
    "training.steps": 1,
    "eval.tasks": 0,
    "rollout.max_restarts": 4,
}
WORKERS: dict[str, object] = {"cluster.type": "local", "cluster.rollout_workers": 2}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


class Marker(ag.Callback):
    """Has the process killed that takes the first step of an episode."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def on_run_start(self, run: ag.Run) -> None:
        self.mark.touch()


def processes_left() -> list[str]:
    names = [child.name for child in multiprocessing.active_children()]
    return [name for name in names if name.startswith(("engine-", "rollout-"))]


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [
        {},
        # Longer: evaluations, two engines, environments on servers.
        pytest.param(
            {
                "training.steps": 3,
                "eval.tasks": 2,
                "cluster.engines": 2,
                "cluster.env_servers": 2,
            },
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_run_with_two_workers_is_that_of_one_process_also_if_one_is_killed(
    recipe: Path, tmp_path: Path, more: dict[str, object]
):
    settings = SETTINGS | {"env.name": "training_runs:MarkedBabyAI"}
    here = {name: value for name, value in more.items() if not name.startswith("cluster.")}
    plain = ag.train(recipe, settings | here, run_dir=tmp_path / "plain")
    marker = Marker(tmp_path / "mark")
    settings |= WORKERS | more | {"env.options": {"mark": str(marker.mark)}}
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[marker])
    assert processes_left() == [] and not marker.mark.exists()
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    if not more:  # half of the 8 episodes; what runs on servers has processes of its own
        assert lines[0]["cluster/episodes_lost"] == lines[0]["rollout/episodes_restarted"] == 4
    else:
        begun = [
            line["cluster/episodes_server_0"] + line["cluster/episodes_server_1"] for line in lines
        ]
        assert all(n >= line["rollout/episodes"] for n, line in zip(begun, lines, strict=True))
    without = ("cluster/", "rollout/episodes_restarted", "rollout/published_bytes")
    assert metrics_of(run.folder, without=without) == metrics_of(plain.folder, without=without)
    ours, theirs = episodes_of(run.folder), episodes_of(plain.folder)
    for row in [*ours, *theirs]:
        del row["num_restarts"]
    assert ours == theirs, "tasks, tokens, log-probabilities, rewards"
    models = [one.folder / "model" / "model.safetensors" for one in (run, plain)]
    assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("overlap", [False, True])
def test_groups_that_carry_over_are_played_by_workers_too(
    recipe: Path, tmp_path: Path, overlap: bool
):
    marker = Marker(tmp_path / "mark")
    carrying = {
        "training.steps": 3,
        "env.name": "training_runs:MarkedBabyAI",
        "env.options": {"mark": str(marker.mark)},
        "rollout.max_staleness": 1,
        "rollout.overlap": overlap,
        "policy_loss.importance_cap": 2,
    }
    settings = SETTINGS | WORKERS | carrying
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[marker])
    assert processes_left() == [] and not marker.mark.exists()
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["rollout/episodes"] for line in lines] == [8, 8, 8]
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert all(0 <= line["rollout/staleness_max"] <= 1 for line in lines)
    assert sum(line["cluster/episodes_lost"] for line in lines) >= 1
    learned = [row for row in episodes_of(run.folder) if row["phase"] == "train"]
    names = Counter((row["task_index"], row["sample_index"]) for row in learned)
    assert len(learned) == 24 and max(names.values()) == 1, "no episode twice"


def test_what_workers_cannot_play_is_refused(recipe: Path, tmp_path: Path):
    class Inner(CountingEnv):
        """Cannot be imported."""

        def reset(self, task: Task) -> str:
            return super().reset(task)

        def step(self, action: str) -> StepResult:
            return super().step(action)

    def refusal(settings: dict[str, object], **objects: type[CountingEnv]) -> str:
        with pytest.raises(ConfigError) as refused:
            ag.train(recipe, SETTINGS | settings, run_dir=tmp_path / "run", **objects)
        return str(refused.value)

    alone = refusal({"cluster.rollout_workers": 2})
    assert "cluster.rollout_workers=2" in alone and "set cluster.type=local" in alone
    with_workers = refusal(WORKERS | {"env.workers": 3})
    assert "env.workers=3" in with_workers and "set cluster.env_servers=3" in with_workers
    unknown = refusal(WORKERS | {"env.levels": []}, env=Inner)
    assert "env.name=<object>:" in unknown and "define it in a module" in unknown
