"""TextCraft as an environment: texts, rules of crafting, bad input, determinism."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.envs.scenarios.textcraft.actions import (
    Craft,
    CraftingMistake,
    Get,
    Inventory,
    parse,
)
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.envs.scenarios.textcraft.minecraft import load_book
from agentgym_rl.errors import install_command
from agentgym_rl.types import StepResult, Task
from worked_examples import assert_example_holds

NOTHING_CRAFTED = {"items_crafted": 0.0, "depth_reached": 0.0}


def task_for(item: str, seed: int = 0) -> Task:
    return Task("textcraft", "train", load_book().goals.index(item), level=item, seed=seed)


def start(item: str) -> TextCraft:
    env = TextCraft()
    env.reset(task_for(item))
    return env


def play(env: TextCraft, *actions: str) -> StepResult:
    """Do the actions, all but the last of which must be valid."""
    for action in actions[:-1]:
        assert env.step(action).valid_action, action
    return env.step(actions[-1])


def test_first_observation_lists_commands_then_the_goal():
    env = TextCraft(num_distractors=2)
    lines = env.reset(task_for("chest")).split("\n")
    assert lines[0] == "Crafting commands:"
    assert lines[-2:] == ["", "Goal: craft chest."]
    assert len(lines[1:-2]) == 4  # chest, planks and two distractors
    assert {"craft 1 chest using 8 planks", "craft 4 oak planks using 1 oak logs"} <= set(lines)


def test_needed_commands_follow_the_wood_of_the_goal():
    env = TextCraft(num_distractors=0)
    assert set(env.reset(task_for("spruce_chest_boat")).split("\n")[1:-2]) == {
        "craft 1 spruce chest boat using 1 chest, 1 spruce boat",
        "craft 1 chest using 8 planks",
        "craft 1 spruce boat using 5 spruce planks",
        "craft 4 spruce planks using 1 spruce logs",
    }


@pytest.mark.parametrize("num_distractors", [0, 10, 40])
def test_number_of_distractors_is_exact(num_distractors: int):
    env = TextCraft(num_distractors=num_distractors)
    for task in (*TextCraft.tasks("train")[::25], *TextCraft.tasks("test")[::10]):
        needed = TextCraft(num_distractors=0).reset(task).count("\ncraft ")
        lines = env.reset(task).split("\n")
        assert len(lines) == len(set(lines)) == needed + num_distractors + 3


def test_seed_changes_distractors_but_not_the_goal():
    env = TextCraft()
    texts = {env.reset(task_for("chest", seed)) for seed in (-1, 0, 1, 2)}
    assert len(texts) == 4
    assert {text.rpartition("\n")[2] for text in texts} == {"Goal: craft chest."}


def test_crafting_counts_by_hand():
    env = start("chest")
    # 2 logs -> 8 planks; 2 planks -> 4 sticks; 6 planks are left.
    play(env, "get 2 oak log", "craft 8 oak planks using 2 oak log")
    assert play(env, "craft 4 stick using 2 oak planks").observation == "Crafted 4 stick."
    assert env.step("inventory").observation == "Inventory: 6 oak planks, 4 stick."


def test_goal_ends_the_episode_with_reward_one():
    env = start("chest")
    before = play(env, "get 2 birch log", "craft birch planks using 2 birch log")
    assert (before.reward, before.terminated) == (0.0, False)
    result = env.step("craft 1 chest using 8 birch planks")
    assert result == StepResult(
        "Crafted 1 chest. The goal is reached.",
        1.0,
        terminated=True,
        success=True,
        metrics={"items_crafted": 2.0, "depth_reached": 2.0},
    )


def test_what_was_crafted_is_reported_from_the_first_round_and_when_it_changes():
    env = start("chest")
    actions = ("get 2 birch log", "nonsense", "craft birch planks using 2 birch log", "inventory")
    assert [env.step(action).metrics for action in actions] == [
        {"items_crafted": 0.0, "depth_reached": 0.0},
        {},
        {"items_crafted": 1.0, "depth_reached": 1.0},
        {},
    ]


def test_recipes_that_are_not_shown_are_accepted():
    env = TextCraft(num_distractors=0)
    assert "bamboo" not in env.reset(task_for("wooden_pickaxe"))
    assert play(env, "get 2 bamboo", "craft 1 stick using 2 bamboo").valid_action


def test_repeated_ingredient_is_added_up():
    env = start("stick")
    assert play(env, "get 2 bamboo", "craft stick using 1 bamboo, 1 bamboo").success


@pytest.mark.parametrize(
    "action",
    [
        "CRAFT 4 Oak Planks USING 1 Oak Log",
        "  craft\t4  oak_planks \n using 1 oak_log.  ",
        "craft 4 minecraft:oak_planks using 1 minecraft:oak_log",
        "craft oak planks using 1 oak log...",
        "craft 04 oak planks using 01 oak log",
        "`craft 4 oak planks using 1 oak log`",
        "**craft 4 oak planks using 1 oak log**",
        "[craft 4 oak planks using 1 oak log]",
        "\"craft 4 \u201coak planks\u201d using 1 'oak log'.\"",
        "craft 4x oak planks using 1x oak log!",
        "craft 4 oak plank using 1 oak log",
        "craft 4 oak planks using 1 oak logs",
        "craft 4 oak planks using 1 logs",
    ],
)
def test_decoration_is_tolerated(action: str):
    assert play(start("chest"), "Get 1 Oak_Log.", action).observation == "Crafted 4 oak planks."


@pytest.mark.parametrize(
    ("action", "item"),
    [
        ("get 4 oak logs", "oak log"),
        ("get 4 logs", "oak log"),
        ("get 4 minecraft:oak_logs.", "oak log"),
        ("get 4 coal or charcoal", "coal"),
        ("get 4 lily of the valley or bone meal", "lily of the valley"),
        ("get 4 diamonds", "diamond"),
        ("get 4 poppies", "poppy"),
        ("get 4 sugar canes", "sugar cane"),
        ("get 4 bricks", None),
        ("get 4 sticks", None),
        ("get 4 planks", None),
        ("get 4 wool", None),
    ],
)
def test_general_and_plural_names_fetch_an_item_that_is_raw(action: str, item: str | None):
    result = start("chest").step(action)
    if item is None:
        assert not result.valid_action and "has to be crafted" in result.observation
    else:
        assert result == StepResult(f"Got 4 {item}.", metrics=NOTHING_CRAFTED)


def test_a_general_ingredient_is_the_kind_that_is_held_in_the_number():
    env = start("chest")
    got = ("get 2 birch log", "craft 8 birch planks using 2 birch logs", "get 1 oak log")
    play(env, *got, "craft 4 oak planks using 1 oak log")
    assert play(env, "craft 1 chest using 8 planks").success  # of oak planks there are only 4


def test_a_general_ingredient_that_two_kinds_fit_is_refused():
    env = start("chest")
    play(env, "get 1 oak log", "get 1 stripped oak log")
    before = env.step("inventory").observation
    assert env.step("craft 4 oak planks using 1 oak logs") == StepResult(
        "Which oak logs? You have enough of: oak log, stripped oak log.", valid_action=False
    )
    assert env.step("inventory").observation == before


def test_ingredients_may_be_joined_by_and():
    env = start("torch")
    play(env, "get 2 bamboo", "craft 1 stick using 2 bamboo", "get 1 coal")
    assert play(env, "craft 4 torches using 1 coal and 1 stick").success
    env.reset(task_for("flint_and_steel"))
    play(env, "get 1 iron ingot", "get 1 flint")
    assert play(env, "craft flint and steel using 1 iron ingot, and 1 flint").success


def test_the_worked_example_is_a_whole_task_of_training():
    env = TextCraft(num_distractors=0)
    task = next(task for task in TextCraft.tasks("train") if task.level == "crafting_table")
    assert_example_holds(env, env.reset(task))
    assert TextCraft.spec.example_action in TextCraft.spec.instructions


@pytest.mark.parametrize(
    ("action", "reply"),
    [
        ("get 1 unobtainium", 'There is no item called "unobtainium".'),
        ("get 1 chest", "You cannot get chest: it has to be crafted."),
        ("get 0 oak log", "A count must be at least 1."),
        ("get 1000 oak log", "A count can be at most 999."),
        ("get " + "9" * 1900 + " oak log", "A count can be at most 999."),
        ("get oak log", 'Say how many of what to get, for example "get 1 oak log".'),
        ("get -1 oak log", 'Say how many of what to get, for example "get 1 oak log".'),
        ("get 1.5 oak log", 'Say how many of what to get, for example "get 1 oak log".'),
        ("get \u0663 oak log", 'Say how many of what to get, for example "get 1 oak log".'),
        (
            "craft 4 planks using 1 oak log",
            '"planks" is a general name. Craft one of its kinds: oak planks, spruce planks, '
            "birch planks, jungle planks, acacia planks, dark oak planks, mangrove planks, "
            "crimson planks, warped planks.",
        ),
        (
            "craft 4 torch using 1 coal or charcoal, 1 stick",
            "Not enough coal or charcoal: you need 1 of one kind (coal, charcoal).",
        ),
        ("craft 4 torch using 1 unobtainiums", 'There is no item called "unobtainiums".'),
        ("craft 1 oak log using 1 stick", "There is no recipe for oak log: get it instead."),
        (
            "craft 1 chest using 8 dirt",
            "No recipe for chest uses exactly these ingredients and counts.",
        ),
        (
            "craft 1 chest using 4 oak planks, 4 birch planks",
            "No recipe for chest uses exactly these ingredients and counts.",
        ),
        ("craft 1 chest using 8 oak planks", "Not enough oak planks: you need 8 and have 3."),
        ("craft 3 oak planks using 1 oak log", "These ingredients make 4 oak planks, not 3."),
        ("craft 1 chest using oak planks", 'The ingredient "oak planks" needs a count and a name.'),
        ("craft 1 chest using 8 oak planks,", 'The ingredient "" needs a count and a name.'),
        ("craft 1 chest using 0 oak planks", "A count must be at least 1."),
        ("dance", '"dance" is not an action. Use get, craft or inventory.'),
        ("", '"" is not an action. Use get, craft or inventory.'),
        ("x" * 100_000, "The action is too long: at most 2000 characters."),
        ("a\ud800\x00b", '"a??b" is not an action. Use get, craft or inventory.'),
        ("y" * 70, f'"{"y" * 60}..." is not an action. Use get, craft or inventory.'),
    ],
)
def test_mistakes_are_explained_and_change_nothing(action: str, reply: str):
    env = start("chest")
    play(env, "get 2 oak log", "craft 4 oak planks using 1 oak log", "get 2 bamboo")
    play(env, "craft 1 stick using 2 bamboo", "get 2 dirt", "craft 1 oak_button using 1 oak planks")
    before = env.step("inventory").observation
    assert env.step(action) == StepResult(reply, valid_action=False)
    assert env.step("inventory").observation == before


def test_inventory_is_valid_even_when_empty():
    expected = StepResult("Inventory: empty.", metrics=NOTHING_CRAFTED)
    assert start("chest").step("inventory") == expected


def test_craft_without_ingredients_is_explained():
    for action in ("craft chest", "craft", "craft using", "craft 1 chest using"):
        result = start("chest").step(action)
        assert not result.valid_action
        assert result.observation.startswith("Say what to craft and from what"), action


def test_available_actions_are_valid_and_lead_on():
    env = start("torch")
    assert env.available_actions()[-1] == "inventory"
    assert "get 1 coal" in env.available_actions()
    play(env, "get 1 coal", "get 2 bamboo", "craft 1 stick using 2 bamboo")
    assert "craft 4 torch using 1 coal, 1 stick" in env.available_actions()
    for action in env.available_actions():
        fresh = start("torch")
        play(fresh, "get 1 coal", "get 2 bamboo", "craft 1 stick using 2 bamboo")
        assert fresh.step(action).valid_action, action


def test_tasks_are_numbered_by_depth_and_item():
    tasks = sorted(
        (*TextCraft.tasks("train"), *TextCraft.tasks("test")), key=lambda task: task.index
    )
    assert [task.index for task in tasks] == list(range(652))
    keys = [(task.category, task.level) for task in tasks]
    assert keys == sorted(keys)
    assert {task.category for task in tasks} == set(TextCraft.spec.categories)
    assert len(TextCraft.tasks("test")) == 100


def test_wrong_tasks_and_options_are_refused():
    with pytest.raises(ValueError, match="no split"):
        TextCraft.tasks("dev")
    with pytest.raises(ValueError, match="0 to 651"):
        TextCraft().reset(Task("textcraft", "train", 652))
    with pytest.raises(ValueError, match="not 'chest'"):
        TextCraft().reset(Task("textcraft", "train", 0, level="chest"))
    with pytest.raises(ValueError, match="num_distractors"):
        TextCraft(num_distractors=-1)


def test_episodes_share_nothing_that_changes():
    one, two = start("chest"), start("chest")
    one.step("get 3 oak log")
    assert two.step("inventory").observation == "Inventory: empty."
    first = one.reset(task_for("chest"))
    assert one.step("inventory").observation == "Inventory: empty."
    for task in TextCraft.tasks("train")[::40]:
        two.reset(task)
    assert first == two.reset(task_for("chest")) == TextCraft().reset(task_for("chest"))


_FINGERPRINT = """
import hashlib
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
digest = hashlib.sha256()
env = TextCraft()
for split in TextCraft.spec.splits:
    for task in TextCraft.tasks(split):
        text = env.reset(task) + env.expert_action() + str(env.available_actions())
        digest.update(f"{task}{text}".encode())
print(digest.hexdigest())
"""


def test_processes_with_other_hash_seeds_agree():
    digests = {
        subprocess.run(
            [sys.executable, "-c", _FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@settings(max_examples=50)
@given(st.text(max_size=300))
def test_any_text_can_be_parsed(text: str):
    assert isinstance(parse(text), Get | Craft | Inventory | CraftingMistake)


_NAMES = st.sampled_from(["oak log", "oak_planks", "planks", "stick", "chest", "coal", "", "using"])
_COUNTS = st.sampled_from(
    ["1", "2", "4", "8", "0", "-1", "999", "1000", "\uff19", "1e3", "", "9" * 5000]
)
_PARTS = st.tuples(_COUNTS, _NAMES).map(" ".join)
_ACTIONS = st.one_of(
    _PARTS.map("get {}".format),
    st.tuples(_PARTS, st.lists(_PARTS, max_size=3).map(", ".join)).map(
        lambda made: f"craft {made[0]} using {made[1]}"
    ),
    st.just("inventory"),
    st.text(max_size=50),
)


@settings(max_examples=150)
@given(st.lists(_ACTIONS, max_size=12))
def test_any_actions_keep_the_contract(actions: list[str]):
    env = start("chest")
    total = 0.0
    for action in actions:
        before = env.step("inventory").observation
        result = env.step(action)
        total += result.reward
        assert result.success == result.terminated == (result.reward == 1.0)
        assert result.valid_action or env.step("inventory").observation == before
        assert len(result.observation) < 1000
        result.observation.encode()
        if result.terminated:
            break
    assert total in (0.0, 1.0)


def test_details_tell_goal_commands_and_inventory():
    env = TextCraft(num_distractors=0)
    assert env.details() == {}
    env.reset(task_for("chest"))
    play(env, "get 2 oak log", "craft 4 oak planks using 1 oak log")
    details = env.details()
    assert (details["goal"], details["depth"]) == ("chest", 2)
    assert sorted(details["commands"]) == [
        "craft 1 chest using 8 planks",
        "craft 4 oak planks using 1 oak logs",
    ]
    assert details["inventory"] == {"oak log": 1, "oak planks": 4}


def test_missing_data_of_the_game_are_named_with_the_remedy():
    program = (
        "import sys; sys.modules['minecraft_data'] = None\n"
        "from agentgym_rl.cli.main import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, "play", "textcraft"], capture_output=True, text=True
    )
    assert result.returncode
    assert "environment 'textcraft' needs 'minecraft-data', which is not installed" in result.stderr
    assert install_command("textcraft") in result.stderr
    assert "ModuleNotFoundError" not in result.stderr
