"""Stored episodes under another reward."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from test_episode_store import FAILED, SAMPLE, SOLVED

from agentgym_rl.errors import RunError
from agentgym_rl.runs.episodes import read_groups, write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import RunState, run_state
from agentgym_rl.runs.rescoring import rescore_run, rescored
from agentgym_rl.types import Episode


def by_length(episode: Episode) -> float:
    return 1.0 - 0.25 * len(episode.rounds)


def test_one_number_goes_to_the_last_round_and_its_last_token():
    found = rescored(SOLVED, by_length)
    assert found.reward == 0.5 and found.success
    assert [round_.reward for round_ in found.rounds] == [0.0, 0.5]
    # SAMPLE's second action is its last token.
    assert found.samples[0].rewards == (0.0, 0.0, 0.0, 0.0, 0.0, 0.5)
    assert found.samples[0].token_ids == SAMPLE.token_ids


def test_a_number_for_each_round_goes_to_its_own_tokens():
    found = rescored(SOLVED, lambda episode: [0.25, 1.0])
    assert found.reward == 1.25
    assert found.samples[0].rewards == (0.0, 0.0, 0.0, 0.25, 0.0, 1.0)


def test_tries_before_the_last_count_nothing():
    rounds = (SOLVED.rounds[0], replace(SOLVED.rounds[1], try_index=1))
    found = rescored(replace(SOLVED, rounds=rounds), lambda episode: [5.0, 1.0])
    assert found.reward == 1.0 and [round_.reward for round_ in found.rounds] == [0.0, 1.0]


def test_failed_episodes_are_not_asked_about():
    assert rescored(FAILED, lambda episode: 1 / 0) is FAILED


@pytest.mark.parametrize("given", [math.nan, [1.0], [1.0, math.inf]])
def test_rewards_that_are_none_are_refused(given: float | list[float]):
    with pytest.raises(RunError, match="reward function failed for babyai/44/7: ValueError"):
        rescored(SOLVED, lambda episode: given)


def test_a_run_is_written_anew_with_its_groups_and_metrics(tmp_path: Path):
    run, out = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "out")
    run.create("seed = 1\n")
    run.append_metrics({"step": 1, "rollout/reward_mean": 0.75, "train/loss": 2.0})
    write_episodes(run.episodes, [[SOLVED], [FAILED, SOLVED]], phase="train", step=1)
    write_episodes(run.episodes, [[SOLVED]], phase="eval", step=0)
    summary = rescore_run(run, by_length, out)
    assert (summary.num_episodes, summary.num_changed) == (3, 3)
    assert (summary.mean_before, summary.mean_after) == (0.75, 0.5)
    assert [len(group) for group in read_groups(out.episodes / "train-000001.parquet")] == [1, 2]
    assert out.read_metrics() == [{"step": 1, "rollout/reward_mean": 0.5, "train/loss": 2.0}]
    assert out.config_file.read_text() == "seed = 1\n"
    assert run_state(out, num_steps=1, target=9) is RunState.STORED
    assert read_groups(run.episodes / "train-000001.parquet")[0] == [SOLVED]
    with pytest.raises(RunError, match="holds a run already; name another folder"):
        rescore_run(run, by_length, out)


def test_a_reward_that_raises_leaves_nothing_behind(tmp_path: Path):
    run, out = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "out")
    write_episodes(run.episodes, [[SOLVED]], phase="eval", step=0)
    write_episodes(run.episodes, [[SOLVED], [SOLVED]], phase="train", step=1)
    calls = iter([0.5])
    with pytest.raises(RunError, match="failed for babyai/44/7: StopIteration"):
        rescore_run(run, lambda episode: next(calls), out)
    assert not out.path.exists()
