"""The limit on rounds as a function of the training step."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agentgym_rl.config import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    StepRoundsConfig,
)
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.rounds import make_scheduler


def test_step_rounds_change_only_at_stage_borders():
    scheduler = make_scheduler(StepRoundsConfig(rounds=(10, 20, 30), steps_per_stage=100))
    limits = [scheduler.max_rounds(step) for step in range(1, 1001)]
    assert limits == [10] * 100 + [20] * 100 + [30] * 800


def test_step_rounds_do_not_depend_on_what_was_asked_before():
    config = StepRoundsConfig(rounds=(10, 20, 30), steps_per_stage=100)
    asked = make_scheduler(config)
    for step in (1, 250, 101, 100, 200, 201):
        assert asked.max_rounds(step) == make_scheduler(config).max_rounds(step)


def test_stages_may_last_one_step_and_there_may_be_one_stage():
    quick = make_scheduler(StepRoundsConfig(rounds=(1, 2, 4), steps_per_stage=1))
    assert [quick.max_rounds(step) for step in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 4]
    single = make_scheduler(StepRoundsConfig(rounds=(7,), steps_per_stage=10))
    assert [single.max_rounds(step) for step in (1, 10, 11, 99)] == [7, 7, 7, 7]


def test_fixed_rounds_never_change():
    scheduler = make_scheduler(FixedRoundsConfig(rounds=12))
    assert {scheduler.max_rounds(step) for step in range(1, 500)} == {12}


@pytest.mark.parametrize("rounds", [(), (0, 5), (10, 10), (20, 10)])
def test_rounds_that_do_not_grow_are_refused(rounds: tuple[int, ...]):
    with pytest.raises(ValidationError):
        StepRoundsConfig(rounds=rounds, steps_per_stage=100)


def history(
    success: list[float], truncated: float | list[float] = 0.0, max_tokens: float = 0.0
) -> list[Metrics]:
    cut = truncated if isinstance(truncated, list) else [truncated] * len(success)
    return [
        {
            "step": step,
            "rollout/success_rate": s,
            "rollout/truncated_rate": t,
            "rollout/max_tokens_rate": max_tokens,
        }
        for step, (s, t) in enumerate(zip(success, cut, strict=True), start=1)
    ]


ADAPTIVE = AdaptiveRoundsConfig(rounds=(5, 10, 20), window=2)


def limits(lines: list[Metrics]) -> list[int]:
    """Return the limit at each step, with what is logged before it."""
    scheduler = make_scheduler(ADAPTIVE)
    return [scheduler.max_rounds(step, lines[: step - 1]) for step in range(1, len(lines) + 2)]


def test_adaptive_rounds_stay_while_success_rises():
    rising = [0.1 * step for step in range(9)]
    assert set(limits(history(rising))) == {5}


def test_adaptive_rounds_grow_when_success_stops_rising():
    # Windows of 2: (0.1, 0.2) then (0.5, 0.6) gains 0.4; (0.2, 0.5), (0.6, 0.6) gains 0.25;
    # (0.5, 0.6), (0.6, 0.508) gains 0.004, less than 0.01: the stage is over after step 6.
    assert limits(history([0.1, 0.2, 0.5, 0.6, 0.6, 0.508])) == [5, 5, 5, 5, 5, 5, 10]


def test_every_stage_has_time_and_the_last_never_ends():
    flat = limits(history([0.5] * 14))
    assert flat == [5] * 4 + [10] * 4 + [20] * 7


def test_adaptive_rounds_grow_when_limits_cut_most_episodes():
    # One window is enough; success is still rising.
    lines = history([0.0, 0.1, 0.3, 0.5, 0.7], [0.9, 0.8, 0.5, 0.5, 0.5])
    assert limits(lines) == [5, 5, 10, 10, 10, 10]


def test_adaptive_rounds_do_not_grow_for_episodes_that_a_full_context_ends():
    lines = history([0.0, 0.1, 0.3, 0.5, 0.7], 0.9, max_tokens=0.3)
    assert set(limits(lines)) == {5}


def test_adaptive_rounds_read_each_line_of_the_history_once_over_a_run():
    class CountedLine(dict[str, float]):
        num_reads = 0

        def __getitem__(self, key: str) -> float:
            CountedLine.num_reads += 1
            return super().__getitem__(key)

    lines: list[Metrics] = [CountedLine(line) for line in history([0.5] * 400)]
    scheduler = make_scheduler(AdaptiveRoundsConfig(rounds=(5, 10, 20), window=150))
    for step in range(1, len(lines) + 2):
        scheduler.max_rounds(step, lines[: step - 1])
    # Two windows of two numbers and one of two, at most, for each line.
    assert CountedLine.num_reads <= 400 * (2 * 150 + 2 * 150)


def test_adaptive_rounds_know_nothing_but_the_history():
    lines = history([0.1, 0.2, 0.5, 0.6, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.4])
    resumed = [
        make_scheduler(ADAPTIVE).max_rounds(step, lines[: step - 1]) for step in range(1, 13)
    ]
    assert resumed == limits(lines)
    # Lines of steps that are made again, as after a kill, do not count.
    assert make_scheduler(ADAPTIVE).max_rounds(4, lines) == resumed[3]
