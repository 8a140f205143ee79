"""A run whose environment reports numbers of its own and whose rewards are a user's function."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agentgym_rl.runs.folder import RunFolder
from env_servers import server_thread
from training_runs import RECIPE, refused, succeeded, train

pytestmark = pytest.mark.slow

SETTINGS = (
    "env.name=fakes:ReportingEnv",
    "env.levels=[]",
    "reward.function=reward_functions:of_parts",
    "reward.weights.rounds=2",
    "training.steps=2",
    "rounds.steps_per_stage=1",
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "small.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def in_process(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "local"
    assert succeeded(train(recipe, *SETTINGS, "--run-dir", path))
    return RunFolder(path)


@pytest.fixture(scope="module", params=["in_process", "over_http"])
def run(
    request: pytest.FixtureRequest,
    recipe: Path,
    in_process: RunFolder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunFolder]:
    if request.param == "in_process":
        yield in_process
        return
    path = tmp_path_factory.mktemp("runs") / "http"
    model = (f"model.path={in_process.model}", "warm_start.steps=0")
    with server_thread("fakes:ReportingEnv") as url:
        outcome = train(recipe, *SETTINGS, *model, f"env.url={url}", "--run-dir", path)
    assert succeeded(outcome)
    yield RunFolder(path)


def test_metrics_have_what_was_reported(run: RunFolder):
    lines = run.read_metrics()
    assert len(lines) == 2
    for line in lines:
        assert line["rollout/env/count"] >= 0
        assert line["rollout/env/num_steps"] >= 1
        parts = {name: line[f"rollout/reward/{name}"] for name in ("own", "rounds", "goal")}
        expected = parts["own"] + 2 * parts["rounds"] + parts["goal"]
        assert line["rollout/reward_mean"] == pytest.approx(expected)
        assert line["rollout/env_reward_mean"] == pytest.approx(parts["own"])
        assert line["rollout/episodes_failed"] == 0
    assert "eval/reporting/env/count" in lines[-1]
    assert "eval/reporting/reward/goal" in lines[-1]


def test_parquet_and_reports_have_it_too(run: RunFolder):
    rows = pq.read_table(run.episodes / "train-000001.parquet").to_pylist()
    for row in rows:
        assert json.loads(row["payload"])["goal"] == row["task_index"] + 1
        last = row["rounds"][-1]
        parts = dict(last["reward_parts"])
        weighed = parts["own"] + 2 * parts["rounds"] + parts["goal"]
        assert row["reward"] == pytest.approx(weighed)
        assert row["env_reward"] == pytest.approx(parts["own"])
        on_tokens = sum(sum(sample["rewards"]) for sample in row["samples"])
        assert on_tokens == pytest.approx(row["reward"], rel=1e-6)
    report = json.loads((run.eval / "step-000002.json").read_text())
    assert report["metrics"]["count"]["episodes"] > 0
    assert report["reward_function"] == "reward_functions:of_parts"
    assert report["env_reward_mean"] is not None


def test_a_function_that_there_is_not_is_refused_before_anything_is_made(
    recipe: Path, tmp_path: Path
):
    for flags in (["--dry-run"], ["--run-dir", tmp_path / "run"]):
        settings = (*SETTINGS, "reward.function=reward_functions:of_prats")
        assert refused(
            train(recipe, *settings, *flags), "reward.function", "did you mean 'of_parts'"
        )
    assert not (tmp_path / "run").exists()
