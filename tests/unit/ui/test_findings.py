"""Findings: each rule on curves that show just what it looks for, and on curves that do not."""

from __future__ import annotations

import pytest

from agentgym_rl.ui.findings import Curves, findings

STEPS = list(range(1, 11))


def ramp(first: float, last: float) -> list[float | None]:
    return [first + (last - first) * place / 9 for place in range(10)]


def titles(**columns: list[float | None]) -> dict[str, str]:
    """Return the severity of each finding by its title."""
    return {item.title: item.severity for item in findings(Curves(STEPS, columns))}


@pytest.mark.parametrize(
    ("columns", "title", "severity"),
    [
        ({"entropy": [2.0] * 5 + [0.01] * 5}, "Entropy collapse", "bad"),
        (
            {"entropy": [2.0] * 5 + [0.01] * 5, "success_rate": [0.1] * 5 + [0.5] * 5},
            "Entropy collapse",
            "warn",
        ),
        (
            {"entropy": [2.0] * 5 + [0.01] * 5, "success_rate": [0.1] * 5 + [0.9] * 5},
            "Entropy collapse",
            "info",
        ),
        ({"flat_groups": [0.9] * 10, "success_rate": [0.0] * 10}, "Groups without spread", "bad"),
        ({"flat_groups": [0.9] * 10, "success_rate": [1.0] * 10}, "Groups without spread", "info"),
        ({"tokens_mean": ramp(100, 400)}, "Sampled tokens grow", "warn"),
        ({"tokens_mean": ramp(400, 50)}, "Sampled tokens shrink", "warn"),
        ({"rounds_mean": ramp(5, 20)}, "Rounds grow", "warn"),
        ({"invalid_rate": ramp(0.1, 0.8)}, "Invalid actions", "bad"),
        ({"repeat_rate": [0.5] * 10}, "Repeated replies", "warn"),
        (
            {"reward_mean": ramp(0.1, 0.8), "success_rate": [0.2] * 10},
            "Reward rises, success does not",
            "bad",
        ),
        ({"failed_rate": [0.1] * 10}, "Failed episodes", "warn"),
        ({"logprob_diff": [0.2] * 10}, "Engine and learner disagree", "warn"),
        ({"updates_skipped": [1.0] * 10}, "Updates without effect", "warn"),
        ({"success_rate": ramp(0.1, 0.9)}, "Success rises", "good"),
        ({"success_rate": ramp(0.9, 0.1)}, "Success falls", "bad"),
    ],
)
def test_a_rule_finds_what_it_looks_for(columns: dict, title: str, severity: str):
    assert titles(**columns)[title] == severity


@pytest.mark.parametrize(("success_rate", "rests"), [(0.0, False), (0.9, True)])
def test_tasks_should_rest_only_where_they_are_solved(success_rate: float, rests: bool):
    columns = {"flat_groups": [0.9] * 10, "success_rate": [success_rate] * 10}
    (finding,) = findings(Curves(STEPS, columns))
    assert "rollout.drop_without_spread" in finding.text
    assert ("rollout.rest_solved" in finding.text) is rests


def test_a_healthy_run_has_only_good_news():
    healthy = titles(
        success_rate=ramp(0.1, 0.8),
        reward_mean=ramp(0.1, 0.8),
        entropy=ramp(1.0, 0.5),
        flat_groups=ramp(0.2, 0.4),
        tokens_mean=ramp(100, 120),
        rounds_mean=ramp(6, 5),
        invalid_rate=ramp(0.2, 0.05),
        repeat_rate=ramp(0.1, 0.1),
        failed_rate=[0.0] * 10,
        logprob_diff=[0.001] * 10,
        updates_skipped=[0.0] * 10,
    )
    assert healthy == {"Success rises": "good"}


def test_windows_are_named_and_gaps_are_skipped():
    (found,) = findings(Curves(STEPS, {"success_rate": [None, 0.1, *[0.5] * 7, None]}))
    # The first three steps have (0.1 + 0.5) / 2, the last three 0.5.
    assert "30.0% to 50.0%" in found.text and found.steps == (1, 10)


def test_a_few_steps_say_nothing():
    assert findings(Curves([1, 2, 3], {"success_rate": [0.0, 0.5, 1.0]})) == []
