"""What environments report of their own, on its way through episodes into metrics and reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.evaluation.metrics import mean_interval
from agentgym_rl.evaluation.own_figures import metric_figures, reward_part_figures
from agentgym_rl.evaluation.report import EvalReport, load_report, score_groups
from agentgym_rl.rollout.collect import collect
from agentgym_rl.rollout.statistics import MAX_OWN_NAMES, rollout_metrics
from agentgym_rl.types import Episode, Group, Round, StopReason, Task
from fake_engines import ScriptedEngine, make_limits, make_participants
from fakes import ReportingEnv

Numbers = Mapping[str, float]


def round_of(metrics: Numbers, parts: Numbers, *, try_index: int = 0) -> Round:
    reward = sum(parts.values())
    return Round(
        "a", "a", "o", reward, True, try_index=try_index, metrics=metrics, reward_parts=parts
    )


def episode_of(*rounds: Round, reason: StopReason = StopReason.TERMINATED) -> Episode:
    return Episode(
        task=Task("counting", "train", 0),
        sample_index=0,
        stop_reason=reason,
        reward=None if reason.is_failure else sum(item.reward for item in rounds),
        success=False,
        rounds=rounds,
        messages=(),
        samples=(),
        seconds=0.0,
    )


def own(metrics: Mapping[str, float]) -> dict[str, float]:
    names = ("rollout/env/", "rollout/reward/", "rollout/own")
    return {name: value for name, value in metrics.items() if name.startswith(names)}


FIRST = episode_of(
    round_of({"count": 1.0, "early": 5.0}, {"goal": 0.5}),
    round_of({"count": 3.0}, {"goal": 0.5, "length": -0.25}),
)
SECOND = episode_of(round_of({"count": 4.0}, {}))


def test_an_episode_has_what_was_reported_last_and_the_sums_of_parts():
    assert FIRST.metrics == {"count": 3.0, "early": 5.0}
    assert FIRST.reward_parts == {"goal": 1.0, "length": -0.25}


def test_only_the_last_try_counts():
    episode = episode_of(
        round_of({"count": 9.0, "early": 1.0}, {"goal": 1.0}),
        round_of({"count": 2.0}, {"length": -0.5}, try_index=1),
    )
    assert episode.metrics == {"count": 2.0}
    assert episode.reward_parts == {"length": -0.5}


def test_metrics_are_means_over_the_episodes_that_report_them():
    failed = episode_of(round_of({"count": 100.0}, {"goal": 9.0}), reason=StopReason.ENV_ERROR)
    groups = [Group(FIRST.task, (FIRST, SECOND, failed))]
    # count: (3 + 4) / 2; early is of one episode; parts are 0 in the other: 1 / 2 and -0.25 / 2
    assert own(rollout_metrics(groups, max_rounds=5)) == {
        "rollout/env/count": 3.5,
        "rollout/env/early": 5.0,
        "rollout/reward/goal": 0.5,
        "rollout/reward/length": -0.125,
    }


def test_there_are_no_such_metrics_where_nothing_is_reported():
    groups = [Group(FIRST.task, (episode_of(round_of({}, {})),))]
    assert own(rollout_metrics(groups, max_rounds=5)) == {}


def test_names_made_up_as_it_goes_are_limited_and_counted():
    episodes = tuple(
        episode_of(round_of({f"n{number}_{i}": 1.0 for i in range(60)}, {})) for number in range(10)
    )
    found = own(rollout_metrics([Group(FIRST.task, episodes)], max_rounds=5))
    assert len(found) == MAX_OWN_NAMES + 1
    assert found["rollout/own_names_dropped"] == 600.0 - MAX_OWN_NAMES


async def test_an_episode_keeps_what_each_round_reported():
    task = ReportingEnv.tasks("train")[1]
    engine = ScriptedEngine(["add 1", "add 2"])
    participants = await make_participants(LocalEnvSource(ReportingEnv), engine)
    (group,) = await collect(
        [task],
        participants,
        make_limits(),
        group_size=1,
        noise=(0,),
        temperature=1.0,
        max_concurrency=1,
    )
    (episode,) = group.episodes
    assert [item.metrics for item in episode.rounds] == [
        {"count": 1.0, "num_steps": 1.0},
        {"count": 3.0, "num_steps": 2.0},
    ]
    assert episode.reward_parts == {"goal": 1.0, "length": -0.25}
    assert (episode.reward, episode.success) == (0.75, True)
    assert episode.task.payload["goal"] == 3


def test_a_report_has_means_with_intervals_over_tasks(tmp_path: Path):
    groups = [Group(FIRST.task, (FIRST,)), Group(SECOND.task, (SECOND,))]
    metrics, parts = metric_figures(groups), reward_part_figures(groups)
    assert (metrics["count"].mean, metrics["count"].episodes) == (3.5, 2)
    assert (metrics["count"].low, metrics["count"].high) == (3.0, 4.0)
    assert (metrics["early"].low, metrics["early"].episodes) == (None, 1)
    assert (parts["goal"].mean, parts["length"].mean) == (0.5, -0.125)
    report = EvalReport(
        "counting", "test", 0, 5, 0.0, score_groups(groups), {}, {},
        metrics=metrics, reward_parts=parts,
    )  # fmt: skip
    report.save(tmp_path, "report")
    assert load_report(tmp_path / "report.json") == report
    text = (tmp_path / "report.md").read_text()
    assert "## Metrics of the environment" in text
    assert "| count | 3.5 | 3 - 4 | 2 |" in text
    assert "| early | 5 | - | 1 |" in text
    assert "## Parts of the reward" in text


def test_the_interval_of_a_mean_holds_it_and_needs_two_tasks():
    assert mean_interval([3.0], [1.0]) is None
    low, high = mean_interval([0.0, 0.0, 10.0, 30.0], [1.0, 1.0, 1.0, 1.0]) or (0.0, 0.0)
    assert low < 10.0 < high
    assert mean_interval([1.0, 1.0], [1.0, 1.0]) == pytest.approx((1.0, 1.0))
