"""SciWorld as an environment: rewards and ends, menus, bad input, options, the expert."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_rl.envs.scenarios.sciworld.env import SciWorld
from agentgym_rl.envs.scenarios.sciworld.tasks import TOPICS
from agentgym_rl.envs.scenarios.sciworld.texts import clean_action
from agentgym_rl.types import StepResult, Task
from worked_examples import assert_example_holds

pytestmark = pytest.mark.slow


def task_of(name: str, variation: int = 0) -> Task:
    topic = next(topic for topic in TOPICS if topic.name == name)
    return Task("sciworld", "train", topic.start + variation, level=name)


def start(name: str, variation: int = 0, **options: object) -> SciWorld:
    env = SciWorld(**options)
    env.reset(task_of(name, variation))
    return env


def follow_expert(env: SciWorld) -> list[StepResult]:
    results = []
    while (action := env.expert_action()) is not None:
        results.append(env.step(action))
    return results


def test_first_observation_states_task_and_room():
    first = SciWorld().reset(task_of("lifespan-longest-lived"))
    goal, room = first.split("\n", 1)
    assert goal.startswith("Your task is to find the animal with the longest life span.")
    assert room.startswith("This room is called the ")
    assert "You also see:" in room


def test_reset_refuses_a_task_of_another_name():
    with pytest.raises(ValueError, match="'boil', not 'melt'"):
        SciWorld().reset(Task("sciworld", "train", 0, level="melt"))


def test_expert_solves_tasks_and_the_rewards_sum_to_one(tmp_path: Path):
    for name in ("find-living-thing", "lifespan-shortest-lived"):
        env = start(name, gold_dir=str(tmp_path))
        results = follow_expert(env)
        assert (results[-1].success, results[-1].terminated) == (True, True)
        assert sum(result.reward for result in results) == pytest.approx(1)
        assert all(result.valid_action for result in results)
        assert env.details()["score"] == 100
        assert env.available_actions() == ()
        with pytest.raises(RuntimeError, match="reset"):
            env.step("look around")


def test_the_worked_example_is_a_whole_task_of_training():
    env = SciWorld()
    task = next(task for task in SciWorld.tasks("train") if task.index == 3236)
    assert_example_holds(env, env.reset(task))
    assert SciWorld.spec.example_action in SciWorld.spec.instructions


@pytest.mark.parametrize(
    "action",
    ["OPEN Door to kitchen", "open the door to the kitchen.", '"open door to kitchen"',
     "`open door to kitchen`", "**open door to kitchen**", "[open door to kitchen]",
     "- open door to kitchen", "open \u201cdoor to kitchen\u201d!"],
)  # fmt: skip
def test_decoration_is_tolerated(action: str):
    result = start("boil").step(action)
    assert (result.observation, result.valid_action) == ("The door is now open.", True)


def test_decoration_is_in_no_action_of_the_simulator():
    for action in start("boil").available_actions():
        assert clean_action(action) == action


def test_an_unknown_verb_is_told_the_actions_and_an_unknown_thing_what_is_here():
    env, twin = start("boil"), start("boil")
    told = env.step("dance")
    assert not told.valid_action
    assert "The actions are: activate X, close X, connect X to Y," in told.observation
    told = env.step("pick up the unicorn")
    assert not told.valid_action
    assert 'The form is "pick up X". You can name: agent, air, art studio,' in told.observation
    for action in ("open door to kitchen", "go to kitchen", "look around"):
        assert env.step(action) == twin.step(action)  # being told changes nothing


def test_expert_goes_on_after_words_without_meaning_but_not_off_its_path(tmp_path: Path):
    env = start("lifespan-longest-lived", gold_dir=str(tmp_path))
    first = env.expert_action()
    assert first is not None
    assert not env.step("sing a song").valid_action
    assert env.expert_action() == first
    env.step("look around")
    assert env.expert_action() is None


def test_paths_are_kept_on_disk_and_a_spoilt_file_is_replaced(tmp_path: Path):
    task = task_of("lifespan-longest-lived", 5)
    folder = tmp_path / "first"
    env = SciWorld(gold_dir=str(folder))
    env.reset(task)
    action = env.expert_action()
    (file,) = (path for path in folder.rglob("*") if path.is_file())
    assert json.loads(file.read_text())[0] == action
    other = tmp_path / "second" / file.relative_to(folder)
    other.parent.mkdir(parents=True)
    other.write_text('{"not": "ours"')
    env = SciWorld(gold_dir=str(tmp_path / "second"))
    env.reset(task)
    assert env.expert_action() == action
    assert json.loads(other.read_text())[0] == action


@pytest.mark.long
def test_expert_waits_where_chance_is_against_it_and_hurries_where_things_burn(tmp_path: Path):
    env = start("grow-fruit", 6, gold_dir=str(tmp_path))
    assert env.expert_action() == "wait1"
    assert follow_expert(env)[-1].success
    # The stove is broken, and the furnace sets the rubber on fire while the solver measures it.
    env.reset(task_of("freeze", 19))
    assert follow_expert(env)[-1].success


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path):
    (tmp_path / "file").write_text("")
    env = start("lifespan-longest-lived", 6, gold_dir=str(tmp_path / "file"))
    assert env.expert_action() is not None


def test_a_wrong_focus_ends_the_episode_and_takes_the_reward_back():
    env = start("find-living-thing")
    # sub-goals reached on the way to the door are paid, and count no more after the mistake
    rewards = [env.step(action).reward for action in ("open door to hallway", "go to hallway")]
    last = env.step("focus on agent")
    assert (last.terminated, last.success, last.valid_action) == (True, False, True)
    assert sum(rewards) + last.reward == pytest.approx(0)
    assert env.details()["score"] == -100


def test_sparse_reward_pays_the_score_with_the_last_round(tmp_path: Path):
    env = start("use-thermometer", gold_dir=str(tmp_path), dense_reward=False)
    *before, last = follow_expert(env)
    assert [result.reward for result in before] == [0] * len(before)
    assert (last.reward, last.success) == (1, True)


def test_max_moves_truncates_when_time_is_up():
    env = start("boil", max_moves=12)
    assert not env.step("wait").is_last  # 11 units of time
    for _ in range(20):
        assert not env.step("look around").is_last  # takes none
    assert not env.step("open door to kitchen").is_last
    last = env.step("close door to kitchen")
    assert (last.truncated, last.terminated, last.success) == (True, False, False)


def test_a_menu_takes_the_number_alone():
    env = start("boil", 3)
    menu = env.step("open door")
    assert menu.valid_action and "0:\topen door between" in menu.observation
    assert set(env.available_actions()) >= {"0", "1", "2"}
    assert env.step(" 1 ").observation == "The door is now open."
    assert env.step("1").valid_action is False


@pytest.mark.parametrize("answer", ["kitchen", "99", "-1", ""])
def test_a_wrong_answer_to_a_menu_drops_the_request(answer: str):
    env = start("boil", 3)
    env.step("open door")
    dropped = env.step(answer)
    assert not dropped.valid_action
    assert "dropped" in dropped.observation
    assert env.step("open door to kitchen").observation == "The door is now open."


def test_a_menu_of_thousands_is_cut():
    env = start("boil", 3)
    menu = env.step("connect terminal to terminal").observation
    assert len(menu) < 9000
    assert menu.endswith("more lines")


def test_questions_take_no_time_and_list_what_there_is():
    env = start("boil", 3)
    assert "pour OBJ in OBJ" in env.step("help").observation
    assert "door to kitchen" in env.step("OBJECTS").observation
    assert env.details()["moves"] == 0


def test_bad_input_is_an_observation():
    env = start("boil", 3)
    inputs = (
        "",
        "\x00\x1b[0m",
        "\ud800 \udfff",
        "x" * 100_000,
        "épée ☃ 漢字 \U0001f600",
        "1\n2\re\n",
    )
    for action in inputs:
        result = env.step(action)
        assert result == StepResult(result.observation, valid_action=False, metrics={"score": 0.0})
        assert result.observation.startswith("No known action matches that input. The actions are:")
    assert env.step("look\naround \x07").valid_action


_FUZZED: list[SciWorld] = []


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.text() | st.lists(st.sampled_from(["open", "door", "to", "in", "0", "the"])).map(" ".join)
)
def test_any_text_is_a_legal_action(action: str):
    if not _FUZZED:
        _FUZZED.append(start("boil", 3))
    result = _FUZZED[0].step(action)
    assert result.observation and not result.is_last


def test_listed_actions_are_understood():
    env, rng = start("mendelian-genetics-known-plant", 3), random.Random(0)
    for _ in range(12):
        listed = env.available_actions()
        assert list(listed) == sorted(set(listed))
        assert env.step(rng.choice(listed)).valid_action


def test_asking_changes_nothing():
    asked, left_alone = start("grow-fruit", 3), start("grow-fruit", 3)
    for action in ("open bee hive", "wait", "wait", "look around"):
        asked.available_actions()
        asked.details()
        assert asked.step(action) == left_alone.step(action)


def test_details_tell_the_score_and_what_viewers_show():
    env = start("boil", 3)
    facts = env.details()
    assert (facts["task_name"], facts["variation"], facts["score"], facts["moves"]) == (
        "boil",
        3,
        0,
        0,
    )
    assert "boil water" in str(facts["task_description"])
    assert "In your inventory, you see:" in str(facts["inventory"])
    assert "focus on substance" in str(facts["goal_progress"])
    assert "object_tree" not in facts
    assert json.dumps(facts)
    env.close()
    assert env.details() == {}


def test_the_object_tree_is_there_on_demand():
    env = start("boil", 3, show_object_tree=True)
    assert len(json.dumps(env.details()["object_tree"])) > 50_000


def test_simplifications_open_doors_and_teleport():
    env = start("boil", 3, simplifications="teleportAction, openDoors")
    assert "(that is open)" in env.step("look around").observation
    assert env.step("teleport to kitchen").valid_action
    assert not start("boil", 3).step("teleport to kitchen").valid_action
    assert env.step("teleport to hallway").valid_action


def test_simplifications_are_checked():
    with pytest.raises(ValueError, match="did you mean 'openDoors'"):
        SciWorld(simplifications="openDoor")
    with pytest.raises(ValueError, match="easy"):
        SciWorld(simplifications="easy,openDoors")
    with pytest.raises(ValueError, match="noElectricalAction"):
        SciWorld(simplifications="noElectricalAction").reset(task_of("power-component"))
    assert SciWorld(simplifications="easy").reset(task_of("power-component"))


def test_a_limit_on_moves_must_be_positive():
    with pytest.raises(ValueError, match="max_moves"):
        SciWorld(max_moves=0)


def test_close_is_safe_to_repeat():
    env = SciWorld()
    env.close()
    env.reset(task_of("boil"))
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="reset"):
        env.step("look around")
