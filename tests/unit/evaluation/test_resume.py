"""An evaluation that goes on: what is kept, what is played again, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from agentgym_rl.api.model_names import model_directory
from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation
from agentgym_rl.config import parse_config
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError, RunError
from agentgym_rl.evaluation.evaluator import Evaluator
from agentgym_rl.evaluation.journal import Journal
from agentgym_rl.evaluation.settings import (
    EvalSettings,
    Wanted,
    begin_or_resume,
    load_settings,
    model_name,
)
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.types import Episode, StopReason
from fake_engines import KeyedEngine, make_limits, make_participants
from fakes import CountingEnv

ACTIONS = ("add 1", "add 2", "add 3", "nonsense")


async def _play(kept: dict[tuple[str, int], Episode] | None = None):
    source, engine = LocalEnvSource(CountingEnv), KeyedEngine(ACTIONS)
    participants = await make_participants(source, engine)
    evaluator = Evaluator(
        parse_config({}, [], source="test"),
        participants,
        make_limits(),
        CountingEnv.tasks("test"),
        spec=CountingEnv.spec,
        samples_per_task=2,
    )
    played = list[Episode]()
    return await evaluator.play(0, on_episode=played.append, kept=kept), played


def test_an_evaluation_that_goes_on_ends_as_one_that_was_never_stopped(tmp_path: Path):
    (report, groups), played = asyncio.run(_play())
    assert len(played) == 20
    journal = Journal(tmp_path)
    for episode in played[:7]:
        journal.add(episode)
    journal.flush()
    failed = dataclasses.replace(
        played[7], stop_reason=StopReason.ENGINE_ERROR, reward=None, success=False
    )
    journal.add(failed)
    journal.flush()
    (tmp_path / "parts" / ".000002.parquet.writing").write_bytes(b"half a part")

    kept = Journal(tmp_path).read()
    assert len(kept) == 7, "an episode that failed is played again"
    (resumed, groups_now), played_now = asyncio.run(_play(kept))
    assert len(played_now) == 13
    assert resumed == report
    assert [_untimed(g.episodes) for g in groups_now] == [_untimed(g.episodes) for g in groups]
    Journal(tmp_path).finish([group.episodes for group in groups_now])
    assert not (tmp_path / "parts").exists()
    assert len(read_episodes(tmp_path / "eval-000000.parquet")) == 20
    assert len(Journal(tmp_path).read()) == 20


def _untimed(episodes: tuple[Episode, ...]) -> list[Episode]:
    return [dataclasses.replace(episode, seconds=0.0) for episode in episodes]


def test_parts_are_written_while_episodes_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agentgym_rl.evaluation.journal._EPISODES_PER_PART", 3)
    _, played = asyncio.run(_play())
    journal = Journal(tmp_path)
    for number, episode in enumerate(played[:8], start=1):
        journal.add(episode)
        assert len(Journal(tmp_path).read()) == number // 3 * 3
    monkeypatch.setattr("agentgym_rl.evaluation.journal._SECONDS_PER_PART", 0.0)
    journal.add(played[8])
    assert len(Journal(tmp_path).read()) == 9


def settings(*overrides: str, model: str = "m", samples_per_task: int = 1) -> EvalSettings:
    config = parse_config({}, overrides, source="test")
    return Wanted(model, samples_per_task, (4, 8)).settings(config)


def test_settings_of_before_still_load(tmp_path: Path):
    now = settings("agent.reflection.tries=2", "rollout.max_restarts=1", samples_per_task=2)
    now.save(tmp_path)
    file = tmp_path / "evaluation.json"
    data = json.loads(file.read_text())
    data["attempts"] = data.pop("samples_per_task")
    data["config"]["agent.reflection.attempts"] = data["config"].pop("agent.reflection.tries")
    data["config"]["rollout.max_attempts"] = data["config"].pop("rollout.max_restarts") + 1
    file.write_text(json.dumps(data))
    assert load_settings(tmp_path) == now


def test_settings_come_back(tmp_path: Path):
    settings("env.levels=['a']", samples_per_task=2).save(tmp_path)
    found = load_settings(tmp_path)
    assert found is not None and not found.differences(
        settings("env.levels=['a']", samples_per_task=2)
    )


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (settings(samples_per_task=2), "samples per task: 1 / 2"),
        (settings(model="n"), "model: 'm' / 'n'"),
        (settings("eval.temperature=0"), r"eval\.temperature: 1\.0 / 0\.0"),
        (settings("env.name=textcraft"), r"env\.name: 'babyai' / 'textcraft'"),
        (settings("agent.reflection.tries=3"), r"agent\.reflection\.tries: 1 / 3"),
    ],
)
def test_another_setting_in_the_same_folder_is_refused(
    tmp_path: Path, other: EvalSettings, told: str
):
    begin_or_resume(tmp_path, settings())
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "000000.parquet").touch()
    begin_or_resume(tmp_path, settings("rollout.max_concurrency=3", "training.lr=1"))
    with pytest.raises(RunError, match=rf"other settings.*{told}; choose another folder"):
        begin_or_resume(tmp_path, other)


def test_an_evaluation_that_never_began_is_in_nobodys_way(tmp_path: Path):
    begin_or_resume(tmp_path, settings(model="a-tpyo"))
    begin_or_resume(tmp_path, settings())
    assert load_settings(tmp_path) == settings()


def test_other_weights_under_the_same_name_are_other_settings(tmp_path: Path):
    (tmp_path / "model.safetensors").write_text("weights")
    before = settings(model=str(tmp_path))
    assert not before.differences(settings(model=str(tmp_path)))
    (tmp_path / "model.safetensors").write_text("other weights")
    (difference,) = before.differences(settings(model=str(tmp_path)))
    assert difference.startswith("the model's files")


def test_a_report_of_nobody_knows_what_is_not_gone_on_with(tmp_path: Path):
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(RunError, match=r"holds a report without evaluation\.json"):
        begin_or_resume(tmp_path, settings())
    (tmp_path / "evaluation.json").write_text('{"model": 3}')
    with pytest.raises(RunError, match="cannot be read"):
        begin_or_resume(tmp_path, settings())


def test_models_are_found_in_run_folders_and_checkpoints(tmp_path: Path):
    run = tmp_path / "run"
    (run / "checkpoints" / "step-4" / "model").mkdir(parents=True)
    (run / "config.toml").write_text("")
    (run / "checkpoints" / "latest").symlink_to("step-4")
    step = str(run / "checkpoints" / "step-4" / "model")
    for name in ("", "checkpoints", "checkpoints/step-4", "checkpoints/latest"):
        assert model_directory(str(run / name)) == step
    (run / "model").mkdir()
    assert model_directory(str(run)) == str(run / "model")
    assert model_directory("someone/some-model") == "someone/some-model"


def test_reports_name_the_run_of_a_model(tmp_path: Path):
    run, checkpoint = tmp_path / "my-run", tmp_path / "my-run" / "checkpoints" / "step-40"
    other = tmp_path / "small-model"
    for folder in (run / "model", checkpoint / "model", other):
        folder.mkdir(parents=True)
    assert model_name(str(run / "model")) == "my-run"
    assert model_name(str(checkpoint / "model")) == "my-run/step-40"
    assert model_name(str(other)) == "small-model"
    assert model_name("owner/hub-name") == "owner/hub-name"


def test_a_model_that_is_not_there_is_refused_with_what_is(tmp_path: Path):
    (tmp_path / "checkpoints" / "step-4").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"no model '.*step-5'; .*checkpoints has step-4"):
        model_directory(str(tmp_path / "checkpoints" / "step-5"))
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "config.toml").write_text("")
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        model_directory(str(run))
    with pytest.raises(ConfigError, match=r"no model '.*two'; .*runs has one"):
        model_directory(str(run.parent / "two"))


def test_a_folder_of_one_environment_is_not_one_of_several(tmp_path: Path):
    settings().save(tmp_path)
    options = EvalOptions(["textcraft", "babyai"], out=tmp_path, engine="openai")
    with pytest.raises(RunError, match="holds the evaluation of one environment"):
        run_evaluation("m", options, [])
    with pytest.raises(ConfigError, match="unknown environment 'babyal'"):
        run_evaluation("m", EvalOptions(["textcraft", "babyal"]), [])
