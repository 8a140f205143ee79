"""BabyAI as an environment: actions, ends of episodes, rewards, bad input, determinism."""

import gc
import random
import re
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.scenarios.babyai.levels import LEVELS
from agentgym_rl.types import StepResult, Task
from worked_examples import assert_example_holds

INDICES = st.integers(min_value=0, max_value=4399)
CHOICES = st.lists(st.integers(min_value=0, max_value=50), max_size=5)


def task_of(level: str, seed: int = 0) -> Task:
    number = next(lv.number for lv in LEVELS if lv.name == level)
    return Task("babyai", "test", seed * 40 + number - 1)


def start(level: str, seed: int = 0) -> BabyAI:
    env = BabyAI()
    env.reset(task_of(level, seed))
    return env


def play(env: BabyAI, *actions: str) -> StepResult:
    """Do the actions, all but the last of which must be valid."""
    for action in actions[:-1]:
        assert env.step(action).valid_action, action
    return env.step(actions[-1])


def walk(env: BabyAI, task: Task, choices: list[int]) -> str:
    """Do listed actions, picked by number; return the last observation before the end."""
    observation = env.reset(task)
    for choice in choices:
        listed = env.available_actions()
        result = env.step(listed[choice % len(listed)])
        if result.is_last:
            return env.reset(task)
        observation = result.observation
    return observation


def test_first_observation_states_goal_scene_and_hands():
    assert BabyAI().reset(task_of("OpenRedDoor")) == (
        "Your goal: open the red door\n"
        "red door 1: closed, 1 ahead, 1 left\n"
        "wall: 2 ahead\n"
        "carrying: nothing"
    )


def test_options_repeat_the_goal_and_show_the_actions():
    env = BabyAI(repeat_goal=True, show_actions=True)
    env.reset(task_of("OpenRedDoor"))
    for action in ("turn left", "sing"):
        lines = env.step(action).observation.split("\n")
        assert lines[0] == "Your goal: open the red door"
        assert lines[-1].startswith("available actions: turn left, turn right, ")
    plain = start("OpenRedDoor").step("turn left").observation
    assert "goal" not in plain
    assert "available" not in plain


def test_success_in_the_middle_of_an_action_ends_the_episode():
    env = start("OpenRedDoor")
    result = env.step("toggle and go through red door 1")
    # forward, left, toggle: the two steps through the door are not taken; the limit is 50
    assert (result.terminated, result.success, result.truncated) == (True, True, False)
    assert result.reward == pytest.approx(1 - 0.9 * 3 / 50)
    assert env.available_actions() == ()
    with pytest.raises(RuntimeError, match="reset"):
        env.step("turn left")


def test_going_through_a_door_ends_one_cell_behind_it():
    env = start("GoToObjMazeS7", seed=1)
    door = next(a for a in env.available_actions() if a.startswith("toggle and go through"))
    result = env.step(door)
    assert result.valid_action
    # Standing behind the door and turning round, it is the nearest thing.
    result = play(env, "turn left", "turn left")
    assert re.match(r"\w+ door 1: open, 1 ahead\n", result.observation)


def test_open_does_not_go_through():
    env = start("GoToObjMazeS7", seed=1)
    door = next(a for a in env.available_actions() if a.startswith("open "))
    assert "door 1: open, 1 ahead\n" in env.step(door).observation
    assert "is already open" in env.step(door).observation
    assert env.step("toggle").observation.count("door 1: closed, 1 ahead\n") == 1


def test_pick_up_and_drop():
    env = start("PickupDistDebug")
    name = next(a for a in env.available_actions() if a.startswith("go to")).removeprefix("go to ")
    assert f"{name}: 1 ahead" in env.step(f"go to {name}").observation
    env = start("GoToRedBall")
    assert env.step("drop").observation == "Cannot drop: you carry nothing."
    held = next(a for a in env.available_actions() if a.startswith("pick up grey"))
    result = env.step(held)
    kind = held.removeprefix("pick up ").rpartition(" ")[0]
    assert result.observation.endswith(f"carrying: {kind}")
    assert "you already carry" in env.step("pick up red ball 1").observation
    assert env.step("drop").observation.endswith("carrying: nothing")


def test_locked_door_needs_the_key_of_its_colour():
    env = start("UnlockPickupDist")
    result = env.step("open green door 1")
    assert not result.valid_action
    assert result.observation == "The green door is locked: carry the green key to open it."
    assert "open green door 1" not in env.available_actions()
    result = play(env, "turn left", "pick up green key 1", "open green door 1")
    assert "green door 1: open, 1 ahead\n" in result.observation


def test_key_in_box_is_solvable_by_text():
    env, actions = start("KeyInBox"), []
    while True:
        action = env.expert_action()
        assert action is not None
        actions.append(action)
        result = env.step(action)
        if result.is_last:
            break
    assert result.success
    assert any(re.fullmatch(r"open \w+ box 1", action) for action in actions)


def test_missions_keep_the_order_of_their_parts():
    missions = {BabyAI().reset(task_of("GoToSeqS5R2", s)).split("\n")[0] for s in range(30)}
    assert any(", then " in mission for mission in missions)
    assert any(" after you " in mission for mission in missions)


@pytest.mark.parametrize("word", [", then ", " after you "])
def test_strict_missions_fail_out_of_order_and_can_be_solved_in_order(word: str):
    env = BabyAI()
    first, second = [], []
    for seed in range(40):
        goal = env.reset(task_of("OpenDoorsOrderN4Debug", seed)).split("\n")[0]
        if word not in goal:
            continue
        colours = re.findall(r"(\w+) door", goal)
        order = colours if "then" in word else colours[::-1]
        first.append(_look_around_and_open(env, order))
        env.reset(task_of("OpenDoorsOrderN4Debug", seed))
        second.append(_look_around_and_open(env, order[::-1]))
    assert first
    assert all(result.success for result in first)
    assert not any(result.success for result in second)
    assert all(result.terminated and result.reward == 0 for result in second)


def _look_around_and_open(env: BabyAI, colours: list[str]) -> StepResult:
    """Open doors in the given order, turning and walking until each comes into view."""
    result, rng = StepResult(""), random.Random(0)
    for colour in colours:
        for _ in range(200):
            result = env.step(f"open {colour} door 1")
            if result.valid_action:
                break
            moves = [a for a in env.available_actions() if a.startswith(("turn", "move"))]
            env.step(rng.choice(moves))
        if result.is_last:
            break
    return result


def test_running_out_of_steps_truncates_without_reward():
    env, num_rounds = start("GoToObjS6"), 0
    result = StepResult("")
    while not result.is_last:
        # Turning on the spot may not face the goal of this task, so it never succeeds.
        result = env.step("turn left" if num_rounds % 2 else "turn right")
        num_rounds += 1
    assert (result.truncated, result.terminated, result.success) == (True, False, False)
    assert result.reward == 0
    assert num_rounds == 16  # 4 x 4 cells, one target


def test_success_on_the_last_step_is_a_success():
    env = start("OpenRedDoor")
    result = play(env, "move forward", "turn left")
    for _ in range(47):
        result = env.step("go to red door 1")  # already there: one idle step
        assert not result.is_last
    result = env.step("open red door 1")
    assert (result.success, result.truncated) == (True, False)
    assert result.reward == pytest.approx(0.1)


@given(index=INDICES, choices=CHOICES)
@settings(max_examples=30)
def test_every_listed_action_is_valid_and_names_a_listed_thing(index: int, choices: list[int]):
    env, task = BabyAI(), Task("babyai", "train", index)
    observation = walk(env, task, choices)
    listed = env.available_actions()
    assert len(set(listed)) == len(listed)
    for action in listed:
        if match := re.search(r"\w+ (ball|box|key|door) \d+$", action):
            assert f"{match[0]}: " in observation
        walk(env, task, choices)
        result = env.step(action)
        assert result.valid_action, (action, result.observation)
        assert 0 <= result.reward <= 1


@given(index=INDICES, choices=CHOICES)
@settings(max_examples=12)
def test_episodes_repeat_exactly_whatever_is_asked_in_between(index: int, choices: list[int]):
    task, asked, silent = Task("babyai", "train", index), BabyAI(), BabyAI()
    assert asked.reset(task) == silent.reset(task)
    for choice in choices:
        asked.expert_action()
        listed = asked.available_actions()
        action = listed[choice % len(listed)]
        result = asked.step(action)
        assert silent.step(action) == result
        if result.is_last:
            break


@given(
    st.one_of(
        st.text(max_size=300),
        st.tuples(
            st.sampled_from(
                ["go to", "pick up", "open", "toggle and go through", "GO  TO", "drop"]
            ),
            st.sampled_from(["", "red", "the", "grey locked", "\x00", "é"]),
            st.sampled_from(["ball", "door", "goal", "ball ball", "door 99999999999", "box -1"]),
        ).map(" ".join),
    )
)
@settings(max_examples=200)
def test_no_text_breaks_a_step(text: str):
    env = start("GoToLocalS8N7")
    result = env.step(text)
    assert result.observation
    assert len(result.observation) < 1000
    if not result.valid_action:
        assert env._simulator is not None
        assert env._simulator.step_count == 0
        assert "\n" not in result.observation


def test_huge_and_odd_texts_are_refused_shortly():
    env = start("GoToRedBall")
    for text in ("go to " * 20_000, "\x00\x1b[31m" * 9_000, "漢" * 100_000, "\u202e", "", " \n\t"):
        result = env.step(text)
        assert not result.valid_action
        assert len(result.observation) < 100
        assert result.observation.isprintable()


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("", "Empty action."),
        ("dance", "Unknown action: 'dance'."),
        ("go to blue elephant", "Unknown object: 'blue elephant'."),
        ("go to goal", "Unknown object: 'goal'."),
        ("go to purple ball 1", "There is no purple ball 1 in view."),
        ("go to grey key", "Which one: grey key 1, grey key 2, grey key 3, grey key 4?"),
        ("toggle", "Cannot toggle: no door or box is directly in front of you."),
        ("open grey key 1", "Cannot open grey key 1: it is neither a door nor a box."),
        ("go through red ball 1", "Cannot go through red ball 1: it is not a door."),
        ("drop", "Cannot drop: you carry nothing."),
    ],
)
def test_refusals_say_what_is_wrong(action: str, reason: str):
    result = start("GoToRedBallGrey").step(action)
    assert (result.observation, result.valid_action) == (reason, False)


@pytest.mark.parametrize(
    "action",
    ["go to red ball 1", "  Go To   THE red ball. ", "go to red ball", "`go to red ball 1`",
     "**go to red ball 1**", "[go to red ball 1]", "go to \u201cred ball 1\u201d",
     "- go to red ball 1"],
)  # fmt: skip
def test_spelling_is_tolerated(action: str):
    assert start("GoToRedBallGrey").step(action).success


def test_pickup_may_be_written_as_one_word():
    one, two = start("GoToRedBallGrey"), start("GoToRedBallGrey")
    assert one.step("pickup grey key 2") == two.step("pick up grey key 2")


def test_spec_is_short_and_says_every_action():
    spec = BabyAI.spec
    assert len(spec.instructions.split()) < 200
    for verb in ("turn left", "go to", "pick up", "drop", "open", "toggle and go through"):
        assert verb in spec.instructions
    assert spec.splits == ("train", "test")


def test_the_worked_example_is_a_whole_task_of_training():
    env = BabyAI()
    task = next(task for task in BabyAI.tasks("train") if task.index == 4224)
    assert_example_holds(env, env.reset(task))
    assert BabyAI.spec.example_action in BabyAI.spec.instructions


def test_observations_are_compact():
    env, rng, counts = BabyAI(), random.Random(0), []
    for task in BabyAI.tasks("test")[:160]:
        counts.append(len(env.reset(task).split()))
        for _ in range(5):
            result = env.step(rng.choice(env.available_actions()))
            if result.is_last:
                break
            counts.append(len(result.observation.split()))
    assert sum(counts) / len(counts) < 30
    assert sum(count > 60 for count in counts) / len(counts) < 0.05


def test_close_can_be_repeated():
    env = start("GoToRedBall")
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="reset"):
        env.step("turn left")


def test_a_simulator_that_is_done_with_leaves_nothing_to_the_collector():
    env = start("ActionObjDoor")
    gc.collect()
    gc.disable()
    try:
        first = weakref.ref(env._simulator)
        env.reset(task_of("BossLevel"))
        assert first() is None
        second = weakref.ref(env._simulator)
        rooms = [weakref.ref(room) for row in env._simulator.room_grid for room in row]
        env.step("turn left")
        env.close()
        assert second() is None and not any(room() for room in rooms)
    finally:
        gc.enable()


def test_details_and_picture_follow_the_episode():
    env = BabyAI()
    assert env.details() == {} and env.render() is None
    env.reset(Task("babyai", "test", 18))  # PickupLoc, seed 0
    before, first = env.details(), env.render()
    assert before["level"] == "PickupLoc" and before["seed"] == 0
    assert str(before["mission"]).startswith("pick up")
    assert (before["steps"], before["max_steps"], before["carrying"]) == (0, 64, "")
    assert first is not None and first.startswith(b"\x89PNG")
    env.step("turn left")
    assert env.details()["steps"] == 1
    assert env.render() not in (None, first)
    env.close()
    assert env.render() is None
