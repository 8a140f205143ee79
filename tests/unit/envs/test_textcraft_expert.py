"""The planner of TextCraft: it solves every task, from every state, in few rounds."""

import random
from collections import Counter

import pytest

from agentgym_rl.envs.scenarios.textcraft.env import TextCraft, load_world
from agentgym_rl.envs.scenarios.textcraft.minecraft import load_book
from agentgym_rl.types import Task


def all_tasks() -> list[Task]:
    return [*TextCraft.tasks("train"), *TextCraft.tasks("test")]


def num_rounds_of_expert(env: TextCraft) -> int:
    """Let the expert play on to the end; every action of it must be valid."""
    for num_rounds in range(1, env.spec.max_rounds + 1):
        result = env.step(env.expert_action())
        assert result.valid_action, result.observation
        if result.success:
            return num_rounds
    raise AssertionError("the expert did not finish within max_rounds")


def plan_texts(goal: str, **held: int) -> list[str]:
    return [action.text for action in load_world().planner.plan(goal, held)]


def test_expert_solves_every_task_with_the_plan_it_began_with():
    env = TextCraft(num_distractors=0)
    longest: Counter[str] = Counter()
    for task in all_tasks():
        env.reset(task)
        num_rounds = num_rounds_of_expert(env)
        assert num_rounds == len(load_world().planner.plan(task.level, {})), task.level
        longest[task.category] = max(longest[task.category], num_rounds)
    assert longest == {"depth 1": 4, "depth 2": 6, "depth 3": 9, "depth 4": 11}


@pytest.mark.parametrize("seed", range(2))
def test_expert_solves_tasks_after_odd_actions(seed: int):
    rng = random.Random(seed)
    base = [item for item, depth in load_book().depths.items() if depth == 0]
    env = TextCraft(num_distractors=30)
    for task in all_tasks()[seed::4]:
        env.reset(task)
        for _ in range(12):
            odd = f"get {rng.randint(1, 9)} {rng.choice(base)}"
            crafts = [action for action in env.available_actions() if action.startswith("craft")]
            if env.step(rng.choice([odd, *crafts, *env.available_actions()])).success:
                break
        else:
            num_rounds_of_expert(env)


def test_plan_shares_one_wood_and_adds_up_amounts():
    # 3 planks for the head and 2 for the sticks are 5, which takes 2 logs.
    assert plan_texts("wooden_pickaxe") == [
        "get 2 oak log",
        "craft 8 oak planks using 2 oak log",
        "craft 4 stick using 2 oak planks",
        "craft 1 wooden pickaxe using 3 oak planks, 2 stick",
    ]


def test_plan_uses_what_is_held():
    assert plan_texts("chest", birch_planks=9) == ["craft 1 chest using 8 birch planks"]
    assert plan_texts("chest", birch_log=1) == [
        "get 1 birch log",
        "craft 8 birch planks using 2 birch log",
        "craft 1 chest using 8 birch planks",
    ]
    assert plan_texts("ladder", stick=5) == [
        "get 4 bamboo",
        "craft 2 stick using 4 bamboo",
        "craft 3 ladder using 7 stick",
    ]


def test_planning_does_not_change_what_is_held():
    held = {"oak_log": 1}
    load_world().planner.plan("chest", held)
    assert held == {"oak_log": 1}
