"""Generated recipe books: exact depths, bounded plans, splits apart, the same everywhere."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from agentgym_rl.envs.scenarios.textcraft.generated_env import GeneratedTextCraft
from agentgym_rl.envs.scenarios.textcraft.generator import (
    GOALS_PER_DEPTH,
    MAX_AMOUNT,
    NUM_BOOKS,
    load_generated_world,
    max_plan_rounds,
    split_of_book,
)
from agentgym_rl.envs.scenarios.textcraft.minecraft import load_book
from agentgym_rl.envs.scenarios.textcraft.recipes import Recipe, Slot, build_book
from agentgym_rl.envs.scenarios.textcraft.world import CraftingWorld
from agentgym_rl.types import Task
from worked_examples import assert_example_holds

ALL_BOOKS = range(sum(NUM_BOOKS.values()))
SOME_BOOKS = ALL_BOOKS[::9]


def words_of(number: int) -> set[str]:
    return {item.partition("_")[0] for item in load_generated_world(number).book.depths}


def test_every_book_has_the_same_number_of_goals_at_each_depth():
    for number in SOME_BOOKS:
        depths = Counter(load_generated_world(number).book.depths.values())
        assert [depths[depth] for depth in range(1, 10)] == [GOALS_PER_DEPTH] * 8 + [0]


def test_the_category_of_a_task_is_the_depth_of_its_goal():
    env = GeneratedTextCraft(num_distractors=0)
    for task in GeneratedTextCraft.tasks("test")[::17]:
        env.reset(task)
        assert task.category == f"depth {env.details()['depth']}"


def test_plans_and_amounts_keep_within_the_stated_bounds():
    for number in SOME_BOOKS:
        world = load_generated_world(number)
        for goal in world.book.goals:
            plan = world.planner.plan(goal, {})
            assert len(plan) <= max_plan_rounds(world.book.depths[goal])
            assert max(action.count or 0 for action in plan) <= MAX_AMOUNT
    assert max_plan_rounds(8) < GeneratedTextCraft.spec.max_rounds


def test_splits_share_no_word_and_no_book():
    used = {
        split: set().union(*(words_of(n) for n in ALL_BOOKS[::4] if split_of_book(n) == split))
        for split in NUM_BOOKS
    }
    assert not used["train"] & used["test"]
    tasks = {split: GeneratedTextCraft.tasks(split) for split in ("train", "test")}
    assert not {t.level for t in tasks["train"]} & {t.level for t in tasks["test"]}
    assert (len(tasks["train"]), len(tasks["test"])) == (6000, 2000)


def test_names_are_readable_and_not_the_games():
    for number in SOME_BOOKS:
        items = load_generated_world(number).book.depths
        assert all(re.fullmatch(r"[a-z]{4,7}_[a-z]{3,6}", item) for item in items), number
        assert not set(items) & set(load_book().depths)
        assert not {"pindle", "orvel"} & set(words_of(number))


def test_books_differ():
    texts = {load_generated_world(n).book.recipes[0].text for n in SOME_BOOKS}
    assert len(texts) == len(SOME_BOOKS)


def test_the_expert_solves_every_task_it_is_given():
    env = GeneratedTextCraft()
    for task in (*GeneratedTextCraft.tasks("train")[::31], *GeneratedTextCraft.tasks("test")[::31]):
        env.reset(task)
        results = [env.step(env.expert_action())]
        while not results[-1].is_last:
            results.append(env.step(env.expert_action()))
        assert all(result.valid_action for result in results)
        assert results[-1].success
        assert len(results) <= max_plan_rounds(int(task.category.removeprefix("depth ")))


def test_replies_speak_of_invented_items_only():
    env = GeneratedTextCraft()
    env.reset(GeneratedTextCraft.tasks("train")[0])
    for action in ("get", "craft", "craft 1 chest using planks", "get 1 oak log", "dance"):
        result = env.step(action)
        assert not result.valid_action
        assert "oak planks" not in result.observation
    assert "oak" not in env.spec.instructions


def test_the_worked_example_is_played_as_shown():
    book = build_book(
        [
            Recipe("pindle_cord", 4, (Slot("pindle bark", ("pindle_bark",), 1),)),
            Recipe("orvel_lamp", 1, (Slot("pindle cord", ("pindle_cord",), 2),)),
        ]
    )
    env = GeneratedTextCraft(num_distractors=0)
    assert_example_holds(env, env._begin(CraftingWorld(book), "orvel_lamp", "0"))


def test_wrong_tasks_are_refused():
    with pytest.raises(ValueError, match="books 0 to 199"):
        GeneratedTextCraft().reset(Task("textcraft_generated", "train", 8000))
    with pytest.raises(ValueError, match="books 0 to 199"):
        GeneratedTextCraft().reset(Task("textcraft_generated", "train", -1))
    with pytest.raises(ValueError, match="of book 1, not of 'book 2'"):
        GeneratedTextCraft().reset(Task("textcraft_generated", "train", 40, level="book 2"))
    with pytest.raises(ValueError, match="no split"):
        GeneratedTextCraft.tasks("dev")


_FINGERPRINT = """
import hashlib
from agentgym_rl.envs.scenarios.textcraft.generated_env import GeneratedTextCraft as Env
digest = hashlib.sha256()
env = Env()
for split in Env.spec.splits:
    for task in Env.tasks(split)[::50]:
        text = env.reset(task) + env.expert_action() + str(env.available_actions())
        digest.update(f"{task}{text}".encode())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_books_are_the_same_on_every_machine(seed: str):
    # A change of this number changes every task: published results are void then.
    result = subprocess.run(
        [sys.executable, "-c", _FINGERPRINT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        result.stdout.strip() == "ae17f827d6993db96d1d8ac15646aa6ecce756c0b1c7936df5ae6cf45311bb96"
    )


def test_it_does_not_need_the_games_data():
    program = (
        "import sys; sys.modules['minecraft_data'] = None\n"
        "from agentgym_rl.envs import registry\n"
        "env = registry.make('textcraft_generated', {})\n"
        "env.reset(registry.env_class('textcraft_generated').tasks('test')[0])"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
