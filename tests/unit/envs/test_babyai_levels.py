"""BabyAI's levels, categories, splits and simulators."""

from collections import Counter

import gymnasium
import pytest

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.scenarios.babyai.levels import CATEGORIES, LEVELS, level_of, seed_of, tasks_of
from agentgym_rl.envs.scenarios.babyai.simulator import make_simulator, pose_of
from agentgym_rl.types import Task


def test_levels_are_numbered_as_in_agentgym():
    assert len(LEVELS) == 40
    assert [level.number for level in LEVELS] == list(range(1, 41))
    by_number = {level.number: level.name for level in LEVELS}
    assert by_number[1] == "GoToRedBallGrey"
    assert by_number[12] == "Open"
    assert by_number[26] == "KeyInBox"
    assert by_number[40] == "BossLevelNoUnlock"


def test_every_level_exists_in_minigrid():
    for level in LEVELS:
        assert gymnasium.spec(level.gym_id).id == level.gym_id


def test_level_4_has_the_rooms_of_agentgym():
    # Its GoToObjS6-v0 (minigrid 2.3) is 4 x 4 cells, walls included, with 16 steps.
    level = level_of(3)
    simulator = make_simulator(level, seed_of(3))
    assert level.name == "GoToObjS6"
    assert (simulator.width, simulator.height, simulator.max_steps) == (4, 4, 16)


def test_index_gives_level_and_seed():
    # 87 = 2 * 40 + 7
    assert level_of(87).number == 8
    assert seed_of(87) == 2


def test_splits_have_separate_seeds():
    test, train = tasks_of("test"), tasks_of("train")
    assert (len(test), len(train)) == (4000, 40_000)
    assert {seed_of(task.index) for task in test} == set(range(100))
    assert {seed_of(task.index) for task in train} == set(range(100, 1100))
    assert test[44] == Task("babyai", "test", 44, category="GoTo", level="GoToLocalS8N7")


def test_unknown_split_is_refused():
    with pytest.raises(ValueError, match="no split 'dev'"):
        tasks_of("dev")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Task("babyai", "dev", 44), "no split 'dev'; it has train, test"),
        (Task("babyai", "test", -1), "tasks 0 to 9007199254740991, not -1"),
        (Task("babyai", "test", 2**53), "not 9007199254740992"),
        (Task("babyai", "test", 44, level="BossLevel"), "'GoToLocalS8N7', not 'BossLevel'"),
    ],
)
def test_a_task_that_there_is_not_is_refused(task: Task, words: str):
    with pytest.raises(ValueError, match=words):
        BabyAI().reset(task)


def test_categories_are_the_groups_of_the_paper():
    numbers = {name: [lv.number for lv in LEVELS if lv.category == name] for name in CATEGORIES}
    assert numbers["GoTo"] == list(range(1, 12))
    assert numbers["Pickup"] == list(range(17, 22))
    assert [numbers[name] for name in CATEGORIES[2:6]] == [[30], [31], [33], [36]]
    counts = Counter(task.category for task in tasks_of("test"))
    others = dict.fromkeys(CATEGORIES[2:6], 100)
    assert counts == {"GoTo": 1100, "Pickup": 500, "Other": 2000} | others
    assert BabyAI.spec.categories == CATEGORIES


def test_simulator_is_that_of_gymnasium_but_without_images():
    for level in LEVELS:
        ours = make_simulator(level, seed=3)
        theirs = gymnasium.make(level.gym_id, disable_env_checker=True)
        theirs.reset(seed=3)
        bare = theirs.unwrapped
        assert ours.mission == bare.mission
        assert ours.max_steps == bare.max_steps
        assert ours.grid == bare.grid
        assert pose_of(ours) == pose_of(bare)


def test_no_level_prints(capfd: pytest.CaptureFixture[str]):
    for level in LEVELS:
        make_simulator(level, seed=1)
    assert capfd.readouterr() == ("", "")


def test_no_level_has_goal_or_lava():
    kinds = {
        content.type
        for level in LEVELS
        for content in make_simulator(level, seed=0).grid.grid
        if content is not None
    }
    assert kinds == {"wall", "door", "key", "ball", "box"}
