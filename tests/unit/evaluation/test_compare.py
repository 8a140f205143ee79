"""Two evaluations of the same tasks: the paired tests, worked out by hand, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from agentgym_rl.config import parse_config
from agentgym_rl.errors import RunError
from agentgym_rl.evaluation.compare import (
    compare_episodes,
    compare_folders,
    permutation_test,
    sign_test,
)
from agentgym_rl.evaluation.settings import Wanted
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode, StopReason, Task


def episode(index: int, is_solved: bool | None, sample_index: int = 0) -> Episode:
    """Return an episode at task `index`; None for one that failed."""
    reasons = {True: StopReason.SUCCESS, False: StopReason.TERMINATED, None: StopReason.ENV_ERROR}
    return Episode(
        task=Task("counting", "test", index),
        sample_index=sample_index,
        stop_reason=reasons[is_solved],
        reward=None if is_solved is None else float(is_solved),
        success=is_solved is True,
        rounds=(),
        messages=(),
        samples=(),
        seconds=0.0,
    )


def episodes(text: str) -> list[Episode]:
    """Return one episode a task: "1" solved, "0" not, "x" failed."""
    flags = {"1": True, "0": False, "x": None}
    return [episode(index, flags[letter]) for index, letter in enumerate(text)]


@pytest.mark.parametrize(
    ("losses", "wins", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),  # 2 * 1/2
        (0, 5, 0.0625),  # 2 * 1/32
        (0, 6, 0.03125),
        (1, 8, 0.0390625),  # 2 * (1 + 9) / 512
        (3, 3, 1.0),  # 2 * (1 + 6 + 15 + 20) / 64 is above 1
        (2, 4, 0.6875),  # 2 * (1 + 6 + 15) / 64
    ],
)
def test_the_sign_test_by_hand(losses: int, wins: int, p: float):
    assert sign_test(losses, wins) == sign_test(wins, losses) == pytest.approx(p)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([0.5], 1.0),
        # Sums over the signs of (1, 1, -0.5): 1.5 and -1.5 at least as far are of 2.5, 1.5, ...
        # |+-1 +-1 +-0.5|: 2.5 (2 times), 1.5 (2), 0.5 (4); seen is 1.5, so 4 of 8.
        ([1.0, 1.0, -0.5], 0.5),
        ([0.25] * 6, 2 / 64),
        ([0.1, 0.2, 0.3], 0.25),  # only all plus and all minus reach 0.6: 2 of 8
    ],
)
def test_the_permutation_test_by_hand(differences: list[float], p: float):
    assert permutation_test(differences) == pytest.approx(p)


def test_the_permutation_test_of_many_draws_signs_and_is_never_zero():
    assert permutation_test([0.25] * 40) == pytest.approx(1 / 10_001)
    assert permutation_test([0.25, -0.25] * 20) == 1.0
    # 26 of 40 ones: the sign test, exact, gives 0.0807
    assert permutation_test([1.0] * 26 + [-1.0] * 14) == pytest.approx(sign_test(14, 26), abs=0.01)


def test_one_sample_is_compared_by_the_tasks_that_one_side_alone_solved():
    found = compare_episodes(episodes("0000001110"), episodes("1111110111"))
    # B wins tasks 0 - 5 and 9, A wins task 6; 7 and 8 are ties
    assert (found.tasks, found.only_a, found.only_b) == (10, 1, 7)
    assert (found.success_a, found.success_b) == (0.3, 0.9)
    assert found.difference == pytest.approx(0.6)
    assert found.p == pytest.approx(2 * (1 + 8) / 256)
    assert 0.0 <= found.low < 0.6 < found.high <= 1.0
    assert found.test.startswith("exact McNemar")
    assert "No clear difference" in found.verdict  # p is 0.07


def test_the_verdict_says_which_is_better():
    better = compare_episodes(episodes("0" * 8 + "1"), episodes("1" * 9))
    assert better.verdict.startswith("B is better: by 88.9 points on these 9 tasks")
    same = compare_episodes(episodes("0101"), episodes("0101"))
    assert same.verdict == "No difference: A and B do the same at each of these 4 tasks."
    worse = compare_episodes(episodes("1" * 9), episodes("0" * 9))
    assert worse.verdict.startswith("B is worse: by 100.0 points")
    assert (worse.low, worse.high) == (-1.0, -1.0)
    assert "| 9 | 100.0% | 0.0% | -100.0 points | -100.0 to -100.0 | 9, 0 |" in worse.to_markdown()


def test_several_samples_count_with_their_mean():
    a = [episode(0, True, 0), episode(0, False, 1), episode(1, False, 0), episode(1, False, 1)]
    b = [episode(0, True, 0), episode(0, True, 1), episode(1, True, 0), episode(1, None, 1)]
    found = compare_episodes(a, b)
    assert (found.success_a, found.success_b) == (0.25, 1.0)
    assert found.difference == 0.75  # (0.5 + 1) / 2
    assert found.p == 0.5  # of +-0.5 +-1 two sums of four reach 1.5
    assert found.test.startswith("paired permutation")


def test_failed_episodes_are_left_out_and_counted():
    found = compare_episodes(episodes("x010"), episodes("11x0"))
    assert (found.tasks, found.left_out) == (2, 2)
    assert "2 tasks have no completed episode on one side" in found.to_markdown()
    with pytest.raises(RunError, match="no task with a completed episode on both sides"):
        compare_episodes(episodes("x"), episodes("1"))


def save(folder: Path, found: list[Episode], *overrides: str, max_rounds: int = 8) -> Path:
    write_episodes(folder, [[item] for item in found], phase="eval", step=0)
    report = {"max_rounds": max_rounds, "split": "test"}
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    config = parse_config({}, overrides, source="test")
    Wanted("m").settings(config).save(folder)
    return folder


def test_folders_are_compared_environment_by_environment(tmp_path: Path):
    for name, text in (("a", "0101"), ("b", "1101")):
        save(tmp_path / name / "counting", episodes(text))
        others = [
            dataclasses.replace(item, task=dataclasses.replace(item.task, env="other"))
            for item in episodes("11")
        ]
        save(tmp_path / name / "other", others)
    first, second = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (first.env, first.tasks, first.difference) == ("counting", 4, 0.25)
    assert (second.env, second.tasks, second.difference) == ("other", 2, 0.0)


def test_other_tasks_are_refused_unless_the_common_ones_are_asked_for(tmp_path: Path):
    a, b = save(tmp_path / "a", episodes("0101")), save(tmp_path / "b", episodes("11010"))
    with pytest.raises(RunError, match=r"4 tasks and .* 5, of which 4 are the same; add --common"):
        compare_folders(a, b)
    (found,) = compare_folders(a, b, common=True)
    assert (found.tasks, found.left_out) == (4, 0)
    save(tmp_path / "c", [episode(9, True)])
    with pytest.raises(RunError, match="no task in common"):
        compare_folders(a, tmp_path / "c", common=True)


def test_other_limits_are_refused(tmp_path: Path):
    a = save(tmp_path / "a", episodes("01"))
    longer = save(tmp_path / "longer", episodes("01"), max_rounds=9)
    with pytest.raises(RunError, match=r"under different conditions \(rounds: 8 / 9\)"):
        compare_folders(a, longer, common=True)
    shorter = save(tmp_path / "shorter", episodes("01"), "rollout.max_tokens=999")
    with pytest.raises(RunError, match=r"rollout\.max_tokens: 4096 / 999"):
        compare_folders(a, shorter)
    # Another format, model or temperature is what one may want to compare.
    other = save(tmp_path / "other", episodes("01"), "agent.format=tags", "eval.temperature=0")
    assert compare_folders(a, other)[0].difference == 0.0


def test_a_folder_without_an_evaluation_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match="holds no finished evaluation; name another"):
        compare_folders(tmp_path, tmp_path)
    run = RunFolder(tmp_path / "run")
    run.create("")
    write_episodes(run.episodes, [episodes("01")], phase="eval", step=0)
    with pytest.raises(RunError, match="it is a run: evaluate it with `agentgym eval"):
        compare_folders(run.path, run.path)
