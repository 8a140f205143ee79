"""`agentgym eval` as a user types it, killed and started again."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation
from agentgym_rl.runs.episodes import read_episodes
from openai_stand_in import MODEL, StandIn

pytestmark = pytest.mark.slow

AGENTGYM = [sys.executable, "-c", "from agentgym_rl.cli.main import main; main()"]
TESTS = Path(__file__).parents[1]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    started = StandIn.start(tmp_path_factory.mktemp("server"))
    yield started
    started.kill()


def command(server: StandIn, *words: object) -> list[str]:
    settings = ("engine.url=" + server.url, "rollout.max_concurrency=8")
    env = ("--env", "fakes:CountingEnv", "--engine", "openai")
    return [*AGENTGYM, "eval", MODEL, *env, *map(str, words), *settings]


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        words, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120
    )


def _environment() -> dict[str, str]:
    path = os.pathsep.join(map(str, (TESTS, TESTS.parent / "src")))
    return {**os.environ, "PYTHONPATH": path}


def test_a_killed_evaluation_goes_on_with_the_same_command(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words = command(server, "-k", 16)  # 160 episodes; a part has 64
    server.behave(delay_s=0.02)
    process = subprocess.Popen(
        words, cwd=tmp_path, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + DEADLINE_S
    while not list(tmp_path.glob("eval/*/parts/*.parquet")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = (tmp_path / "eval").iterdir()
    assert not (folder / "report.json").exists()
    parts = [e for part in (folder / "parts").glob("*.parquet") for e in read_episodes(part)]
    num_asked = len(server.calls())

    server.behave()
    again = run(words, tmp_path)
    assert again.returncode == 0, again.stderr
    assert [item.name for item in (tmp_path / "eval").iterdir()] == [folder.name]
    num_played = sum(len(episode.rounds) for episode in parts)
    episodes = read_episodes(folder / "eval-000000.parquet")
    num_rounds = sum(len(episode.rounds) for episode in episodes)
    assert len(server.calls()) - num_asked == num_rounds - num_played, "none is played twice"
    assert len(episodes) == 160 and {episode.success for episode in episodes} == {True}

    monkeypatch.chdir(tmp_path)
    options = EvalOptions(["fakes:CountingEnv"], attempts=16, engine="openai", out=Path("whole"))
    run_evaluation(MODEL, options, [f"engine.url={server.url}"])
    for name in ("report.json", "report.md"):
        assert (folder / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert results(folder) == results(tmp_path / "whole")
    assert (folder / "report.png").stat().st_size > 5_000


def results(folder: Path) -> list[object]:
    episodes = read_episodes(folder / "eval-000000.parquet")
    return [dataclasses.replace(episode, seconds=0.0) for episode in episodes]
