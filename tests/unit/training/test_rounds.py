"""The limit on rounds as a function of the training step."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agentgym_rl.config import FixedRoundsConfig, StepRoundsConfig
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
