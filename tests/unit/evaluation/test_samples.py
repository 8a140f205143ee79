"""Several samples of a task: pass@k, best of n, votes, intervals over tasks, and their files."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.evaluator import check_samples
from agentgym_rl.evaluation.horizons import horizons_markdown, save_horizons
from agentgym_rl.evaluation.metrics import bootstrap_interval, pass_at_k, wilson_interval
from agentgym_rl.evaluation.report import EvalReport, load_report, score_groups
from agentgym_rl.evaluation.samples import answer_of, mean_logprob, score_task_samples
from agentgym_rl.types import Episode, Group, Round, Sample, StopReason, Task
from fakes import fake_spec

PLAIN = fake_spec("plain")
ANSWERS = fake_spec("quiz", action_tags=("search", "answer"), has_answer=True)


def make_episode(
    reward: float | None,
    *,
    answer: str | None = "42",
    logprobs: tuple[float, ...] = (),
    reason: StopReason | None = None,
) -> Episode:
    """Return a sample: a reward of 1 is a success, None a failure of the infrastructure."""
    if reason is None:
        reason = StopReason.TERMINATED if reward != 1 else StopReason.SUCCESS
        reason = StopReason.ENV_ERROR if reward is None else reason
    mask = (0, *(1 for _ in logprobs))
    sample = Sample(mask, mask, (0.0, *logprobs), tuple(map(float, mask)), (), 0)
    return Episode(
        task=Task("quiz", "test", 1),
        sample_index=0,
        stop_reason=reason,
        reward=reward,
        success=reward == 1,
        rounds=(Round("", answer, "", reward or 0.0, valid_action=answer is not None),),
        messages=(),
        samples=(sample,),
        seconds=0.0,
    )


def make_groups(*rewards: tuple[float | None, ...]) -> list[Group]:
    return [
        Group(Task("quiz", "test", index), tuple(map(make_episode, row)))
        for index, row in enumerate(rewards)
    ]


def make_report(
    groups: list[Group], *, max_rounds: int = 4, samples_per_task: int = 2
) -> EvalReport:
    several = (
        score_task_samples(groups, ANSWERS, samples_per_task=samples_per_task)
        if samples_per_task > 1
        else None
    )
    return EvalReport(
        env="quiz",
        split="test",
        step=0,
        max_rounds=max_rounds,
        temperature=1.0,
        overall=score_groups(groups),
        categories={"": score_groups(groups)},
        stop_reasons={"success": 1},
        samples_per_task=samples_per_task,
        several=several,
    )


@pytest.mark.parametrize(
    ("samples", "successes", "k", "expected"),
    [
        (4, 1, 1, 0.25),
        (4, 1, 2, 0.5),  # 1 - C(3, 2) / C(4, 2) = 1 - 3/6
        (4, 2, 2, 5 / 6),  # 1 - C(2, 2) / C(4, 2) = 1 - 1/6
        (4, 1, 4, 1.0),
        (4, 0, 4, 0.0),
        (5, 4, 2, 1.0),
        (1, 1, 1, 1.0),
    ],
)
def test_pass_at_k_by_hand(samples: int, successes: int, k: int, expected: float):
    assert pass_at_k(samples, successes, k) == pytest.approx(expected)


@given(outcomes=st.lists(st.booleans(), min_size=1, max_size=8), data=st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_success(outcomes: list[bool], data: st.DataObject):
    k = data.draw(st.integers(1, len(outcomes)))
    draws = list(itertools.combinations(outcomes, k))
    share = sum(any(draw) for draw in draws) / len(draws)
    assert pass_at_k(len(outcomes), sum(outcomes), k) == pytest.approx(share)


@pytest.mark.parametrize(("samples", "k"), [(3, 4), (3, 0), (0, 1)])
def test_pass_at_k_needs_k_samples(samples: int, k: int):
    with pytest.raises(ValueError, match=f"pass@{k} needs"):
        pass_at_k(samples, 0, k)


@given(values=st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_bootstrap_interval_laws(values: list[float]):
    low, high = bootstrap_interval(values)
    mean = sum(values) / len(values)
    assert 0.0 <= low <= mean + 1e-9 and mean - 1e-9 <= high <= 1.0 + 1e-9
    assert bootstrap_interval(values) == (low, high), "seeded"
    assert bootstrap_interval(values, [1.0] * len(values)) == pytest.approx((low, high))


def test_bootstrap_interval_of_many_tasks_is_the_normal_one():
    # Half of 400 tasks: 0.5 -+ 1.96 * sqrt(0.25 / 400) = 0.5 -+ 0.049
    assert bootstrap_interval([0.0, 1.0] * 200) == pytest.approx((0.451, 0.549), abs=0.006)


def test_tasks_that_all_fail_or_all_succeed_leave_doubt():
    assert bootstrap_interval([0.0] * 10) == wilson_interval(0, 10)
    assert bootstrap_interval([1.0] * 10) == wilson_interval(10, 10)
    assert bootstrap_interval([4.0] * 10, [4.0] * 10) == wilson_interval(10, 10)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_one_task_tells_nothing_of_others(values: list[float]):
    assert bootstrap_interval(values) == (0.0, 1.0)


def test_scores_of_samples_by_hand():
    groups = make_groups((1, 0, 0, 0), (1, 1, 0.5, 0), (0, 0, 0, 0.5))
    scores = score_task_samples(groups, PLAIN, samples_per_task=4)
    assert scores.mean.success_rate == pytest.approx((1 / 4 + 2 / 4 + 0) / 3)
    assert list(scores.pass_at) == ["1", "2", "4"]
    assert scores.pass_at["1"].success_rate == pytest.approx(scores.mean.success_rate)
    assert scores.pass_at["2"].success_rate == pytest.approx((1 / 2 + 5 / 6 + 0) / 3)
    assert scores.pass_at["4"].success_rate == pytest.approx(2 / 3)
    assert scores.best_by_reward.success_rate == pytest.approx(2 / 3)
    assert scores.best_by_reward.reward_mean == pytest.approx((1 + 1 + 0.5) / 3)
    assert scores.majority is None, "the answers of this environment do not compare"


def test_samples_that_failed_are_left_out_and_tasks_with_too_few_are_not_counted():
    scores = score_task_samples(
        make_groups((1, None), (0, 1), (None, None)), PLAIN, samples_per_task=2
    )
    assert (scores.mean.tasks, scores.mean.success_rate) == (2, 0.75)
    assert (scores.pass_at["2"].tasks, scores.pass_at["2"].success_rate) == (1, 1.0)


def test_scores_of_nothing():
    scores = score_task_samples(make_groups((None, None)), ANSWERS, samples_per_task=2)
    assert scores.mean.tasks == 0 and scores.majority is not None
    assert (scores.majority.success_low, scores.majority.success_high) == (0.0, 1.0)


def test_the_best_by_log_probability_is_the_most_likely_a_token():
    sure, unsure = make_episode(0, logprobs=(-0.1, -0.1, -0.1)), make_episode(1, logprobs=(-0.2,))
    assert mean_logprob(sure) == pytest.approx(-0.1) and mean_logprob(unsure) == -0.2
    assert mean_logprob(make_episode(1)) == float("-inf")
    group = Group(Task("quiz", "test", 0), (unsure, sure))
    assert (
        score_task_samples([group], PLAIN, samples_per_task=2).best_by_logprob.success_rate == 0.0
    )


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([("a", 0), ("b", 1), ("b", 1)], 1.0),
        ([("a", 0), ("b", 1)], 0.0),  # a draw: the first
        ([("b", 1), ("a", 0), ("a", 0)], 0.0),
        ([("  The  Cat.", 1), ("the cat", 1), ("dog", 0)], 1.0),
        ([("a", 0), (None, 0), (None, 0), ("b", 0), ("b", 1)], 0.5),  # alike, but scored unlike
        ([(None, 0), (None, 0)], 0.0),
    ],
)
def test_majority_votes(answers: list[tuple[str | None, float]], expected: float):
    episodes = tuple(make_episode(reward, answer=answer) for answer, reward in answers)
    group = Group(Task("quiz", "test", 0), episodes)
    majority = score_task_samples([group], ANSWERS, samples_per_task=len(episodes)).majority
    assert majority is not None and majority.success_rate == expected


def test_answers_are_compared_without_tags_case_and_blanks():
    answers = ["<answer> Ada  Lovelace. </answer>", "<answer>ada lovelace</answer>", "ADA LOVELACE"]
    found = {answer_of(make_episode(0, answer=answer), ANSWERS) for answer in answers}
    assert found == {"ada lovelace"}
    cut = make_episode(0, answer="<search>x</search>", reason=StopReason.MAX_ROUNDS)
    assert answer_of(cut, ANSWERS) is None


def test_the_interval_of_several_samples_is_over_tasks():
    # Ten samples of each of four tasks that come out alike say as little as four samples.
    groups = make_groups(*[(1,) * 10, (0,) * 10] * 2)
    once = score_groups(make_groups((1,), (0,), (1,), (0,)))
    many = score_groups(groups)
    assert many.success_rate == once.success_rate == 0.5 and many.episodes == 40
    assert many.success_high - many.success_low > 0.7


def test_same_samples_are_refused():
    check_samples(1, temperature=0.0)
    check_samples(4, temperature=0.5)
    with pytest.raises(ConfigError, match=r"4 samples per task with eval\.temperature=0"):
        check_samples(4, temperature=0.0)
    with pytest.raises(ConfigError, match="at least one"):
        check_samples(0, temperature=1.0)


def test_reports_with_samples_come_back(tmp_path: Path):
    report = make_report(make_groups((1, 0), (0, 0)))
    report.save(tmp_path, "report")
    assert load_report(tmp_path / "report.json") == report
    text = (tmp_path / "report.md").read_text()
    assert "## 2 samples per task" in text and "bootstrap over tasks" in text
    assert "| pass@2 | 50.0% |" in text and "(oracle)" in text and "| majority of 2 |" in text


def test_reports_of_before_still_load(tmp_path: Path):
    report = make_report(make_groups((1,), (0,)), samples_per_task=1)
    data = dataclasses.asdict(report)
    del data["samples_per_task"], data["several"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert load_report(tmp_path / "old.json") == report
    assert "Wilson" in report.to_markdown() and "samples per" not in report.to_markdown()


def test_reports_that_say_attempts_still_load(tmp_path: Path):
    report = make_report(make_groups((1, 0), (0, 0)))
    data = dataclasses.asdict(report)
    for table in (data, data["several"]):
        table["attempts"] = table.pop("samples_per_task")
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert load_report(tmp_path / "old.json") == report


@pytest.mark.parametrize("samples_per_task", [1, 2])
def test_several_horizons_share_a_table(tmp_path: Path, samples_per_task: int):
    rows = ((1, 0), (0, 0)) if samples_per_task == 2 else ((1,), (0,))
    reports = [
        make_report(make_groups(*rows), max_rounds=rounds, samples_per_task=samples_per_task)
        for rounds in (4, 8)
    ]
    save_horizons(tmp_path, "report", reports)
    saved = json.loads((tmp_path / "report.json").read_text())["reports"]
    assert saved == [dataclasses.asdict(report) for report in reports]
    text = (tmp_path / "report.md").read_text()
    assert text == horizons_markdown(reports)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table[0] == "| at most | 4 rounds | 8 rounds |"
    assert {line.count("|") for line in table} == {4}
    assert ("pass@2" in text) == ("oracle" in text) == (samples_per_task == 2)
