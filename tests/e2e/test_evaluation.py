"""`agentgym eval` as a user types it, killed and started again."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation
from agentgym_rl.runs.episodes import read_episodes
from commands import Command, Kill, agentgym
from openai_stand_in import MODEL, StandIn
from training_runs import succeeded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    started = StandIn.start(tmp_path_factory.mktemp("server"))
    yield started
    started.kill()


@pytest.mark.long
def test_a_killed_evaluation_goes_on_with_the_same_command(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = (f"engine.url={server.url}", "rollout.max_concurrency=8")
    env = ("--env", "fakes:CountingEnv", "--engine", "openai")
    words = ("eval", MODEL, *env, "-k", 16, *settings)  # 160 episodes; a part has 64
    second_part = Kill(r"rename .*parts/", 2)
    outcome = Command(*words, folder=tmp_path, kill=second_part).wait()
    assert outcome.status == -signal.SIGKILL, outcome.output
    (folder,) = (tmp_path / "eval").iterdir()
    assert not (folder / "report.json").exists()
    parts = [e for part in (folder / "parts").glob("*.parquet") for e in read_episodes(part)]
    # It comes after all requests of the killed process, which the server may not have read yet.
    requests.post(f"{server.url}/chat/completions", json={"model": "none"}, timeout=60)
    num_asked = len(server.calls())

    assert succeeded(agentgym(*words, folder=tmp_path))
    assert [item.name for item in (tmp_path / "eval").iterdir()] == [folder.name]
    num_played = sum(len(episode.rounds) for episode in parts)
    episodes = read_episodes(folder / "eval-000000.parquet")
    num_rounds = sum(len(episode.rounds) for episode in episodes)
    assert len(server.calls()) - num_asked == num_rounds - num_played, "none is played twice"
    assert len(episodes) == 160 and {episode.success for episode in episodes} == {True}

    monkeypatch.chdir(tmp_path)
    options = EvalOptions(
        ["fakes:CountingEnv"], samples_per_task=16, engine="openai", out=Path("whole")
    )
    run_evaluation(MODEL, options, [f"engine.url={server.url}"])
    for name in ("report.json", "report.md"):
        assert (folder / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert results(folder) == results(tmp_path / "whole")
    assert (folder / "report.png").stat().st_size > 5_000


def results(folder: Path) -> list[object]:
    episodes = read_episodes(folder / "eval-000000.parquet")
    return [dataclasses.replace(episode, seconds=0.0) for episode in episodes]
