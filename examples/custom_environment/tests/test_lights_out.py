"""The contract, the rules and the splits."""

from __future__ import annotations

import pytest
from lights_out.env import LightsOut, lit_lamps, same_boards

from agentgym_rl.envs.checking.checker import check
from agentgym_rl.types import Task


@pytest.mark.parametrize("show_distance", [False, True])
def test_the_contract_holds(show_distance: bool) -> None:
    report = check(LightsOut, options={"show_distance": show_distance})
    assert report.problems == ()
    assert report.expert_success_rate == 1.0


def test_a_press_switches_a_lamp_and_its_neighbours() -> None:
    env = LightsOut()
    # The middle lamp has to be pressed: it and its four neighbours are on.
    assert env.reset(Task("lights_out", "train", 1 << 4)).endswith(". * .\n* * *\n. * .")
    assert env.step("press 1 1").observation == "* . .\n. * *\n. * ."
    assert not env.step("press 1 4").valid_action
    assert not env.step("press 2 2 twice").valid_action
    env.step("Press 1  1")
    result = env.step("press 2 2")
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)


def test_the_hint_counts_the_presses_left() -> None:
    env = LightsOut(show_distance=True)
    assert env.reset(Task("lights_out", "train", 0b101)).endswith("Presses left: 2")


def test_every_board_is_different() -> None:
    assert len({lit_lamps(number) for number in range(512)}) == 512


def test_turned_and_mirrored_boards_lie_in_one_split() -> None:
    test = {task.index for task in LightsOut.tasks("test")}
    train = {task.index for task in LightsOut.tasks("train")}
    assert len(test) + len(train) == 511
    assert 80 <= len(test) <= 130
    assert all(
        (board in test) == (number in test) for number in test for board in same_boards(number)
    )
