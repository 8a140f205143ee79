"""What a run lost, from where it is counted to the line of metrics that has it."""

from __future__ import annotations

import pytest

from agentgym_rl.training import setbacks
from agentgym_rl.training.setbacks import Setbacks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test sets."""
    now = [100.0]
    monkeypatch.setattr(setbacks.time, "monotonic", lambda: now[0])
    return now


def test_counts_of_all_sources_are_added_up_and_taken_once():
    lost = Setbacks()
    engine = {"cluster/restarts_engine": 1.0, "cluster/time_lost_s": 2.0, "cluster/engines": 2.0}
    env = {"cluster/restarts_env": 1.0, "cluster/time_lost_s": 0.5, "cluster/episodes_lost": 3.0}
    assert lost.hold(engine) == {"cluster/engines": 2.0}
    assert lost.hold(env) == {}
    assert lost.take() == {
        "cluster/restarts_engine": 1.0,
        "cluster/time_lost_s": 2.5,
        "cluster/restarts_env": 1.0,
        "cluster/episodes_lost": 3.0,
    }
    assert set(lost.take().values()) == {0.0}


def test_a_run_in_one_process_counts_nothing():
    lost = Setbacks()
    lost.begin(has_ranks=False)
    lost.stands_at(0)
    assert lost.take() == {}


def test_time_is_lost_from_the_end_of_the_step_it_goes_back_to(clock: list[float]):
    lost = Setbacks()
    lost.begin(has_ranks=True)
    assert not lost.has_begun
    for step in range(4):
        clock[0] = 100.0 + 10 * step
        lost.stands_at(step)
    assert lost.has_begun
    clock[0] = 133.0
    lost.learner_died()
    clock[0] = 140.0
    lost.stands_at(2)  # which ended at 120
    lost.stands_at(2)
    assert lost.take() == {"cluster/restarts_learner": 1.0, "cluster/time_lost_s": 20.0}
    lost.learner_died()
    clock[0] = 145.0
    lost.stands_at(2)  # it stood there last at 140
    assert lost.take() == {"cluster/restarts_learner": 1.0, "cluster/time_lost_s": 5.0}


def test_lines_that_are_removed_leave_their_counts():
    lost = Setbacks()
    lost.forget([{"step": 3.0, "cluster/restarts_env": 1.0}, {"step": 4.0, "train/loss": 1.0}])
    assert lost.take() == {"cluster/restarts_env": 1.0}
