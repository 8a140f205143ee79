"""The contract, and the rules."""

from __future__ import annotations

import pytest
from my_env.env import LENGTH, MyEnv

import agentgym_rl as ag


@pytest.mark.parametrize("has_compass", [True, False])
def test_the_contract_holds(has_compass: bool) -> None:
    report = ag.check(MyEnv, options={"has_compass": has_compass})
    assert report.problems == ()
    assert report.expert_success_rate == 1.0


def test_digging_at_the_treasure_ends_the_episode() -> None:
    env = MyEnv()
    env.reset(ag.Task("my_env", "train", 2 * LENGTH + 3))
    assert not env.step("fly").valid_action
    assert env.step("dig").reward == 0.0
    assert "right here" in env.step("right").observation
    result = env.step("dig")
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)


def test_no_task_is_in_both_splits() -> None:
    train, test = ({task.index for task in MyEnv.tasks(split)} for split in ("train", "test"))
    assert train and test and not train & test
