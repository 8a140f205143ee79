"""Which tasks a step works on, and which are left of an environment's tasks."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.config import EnvConfig
from agentgym_rl.rollout.tasks import (
    EpochSampler,
    RestingSampler,
    evaluation_tasks,
    select_tasks,
    spread_tasks,
    tasks_per_category,
)
from agentgym_rl.types import Task
from fakes import CountingEnv

TASKS = [
    Task("counting", "train", index, category=category, level=level)
    for index, (category, level) in enumerate(
        [("small", "a"), ("small", "b"), ("large", "a"), ("large", "c"), ("small", "")]
    )
]


def select(**settings: tuple[str, ...]) -> list[int]:
    """Return the indices that the settings of `[env]` let through."""
    return [task.index for task in select_tasks(EnvConfig(**settings), CountingEnv.spec, TASKS)]


@given(num_items=st.integers(1, 20), number=st.integers(1, 30), seed=st.integers(0, 5))
def test_every_epoch_has_each_item_once_however_steps_cut_it(
    num_items: int, number: int, seed: int
):
    sampler = EpochSampler(list(range(num_items)), seed=seed)
    num_steps = -(-3 * num_items // number)
    taken = [item for step in range(1, num_steps + 1) for item in sampler.take(step, number)]
    for epoch in range(3):
        assert sorted(taken[epoch * num_items : (epoch + 1) * num_items]) == list(range(num_items))


def test_what_a_step_takes_depends_on_seed_and_step_alone():
    items = list(range(10))
    in_order = EpochSampler(items, seed=3)
    expected = [in_order.take(step, 4) for step in range(1, 9)]
    backwards = EpochSampler(items, seed=3)
    assert [backwards.take(step, 4) for step in range(8, 0, -1)] == expected[::-1]
    assert EpochSampler(items, seed=3).take(5, 4) == expected[4]
    assert EpochSampler(items, seed=4).take(5, 4) != expected[4]


def test_epochs_differ_in_order():
    sampler = EpochSampler(list(range(20)), seed=0)
    assert sampler.take(1, 20) != sampler.take(2, 20)


def test_a_step_may_take_more_than_there_is():
    assert Counter(EpochSampler("ab", seed=0).take(1, 5)).keys() == {"a", "b"}
    assert sorted(Counter(EpochSampler("ab", seed=0).take(1, 5)).values()) == [2, 3]


def test_the_sampler_keeps_what_it_was_given():
    items = [1, 2, 3]
    sampler = EpochSampler(items, seed=0)
    items.clear()
    assert sorted(sampler.take(1, 3)) == [1, 2, 3]


def test_nothing_to_sample_from_is_refused():
    with pytest.raises(ValueError, match="nothing to sample from"):
        EpochSampler([], seed=0)


def test_all_tasks_pass_without_a_filter():
    assert select() == [0, 1, 2, 3, 4]


def test_categories_and_levels_both_filter():
    assert select(categories=("large",)) == [2, 3]
    assert select(levels=("a", "b")) == [0, 1, 2]
    assert select(categories=("small",), levels=("a", "c")) == [0]
    assert select(categories=("large", "small"), levels=("c",)) == [3]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"categories": ("smal",)},
            r"env.categories: counting has no 'smal' \(did you mean 'small'\?\); "
            "available: small, large",
        ),
        ({"levels": ("z",)}, r"counting has no 'z'; available: a, b, c; 'env.levels=\[\]' keeps"),
        ({"categories": ("small",), "levels": ("a", "z")}, "env.levels: counting has no 'z'"),
        ({"levels": ("v", "w", "x", "y", "z")}, "has no 'v', 'w', 'x' and 2 more; available: a"),
    ],
)
def test_a_name_that_no_task_has_is_refused_with_the_known_ones(
    settings: dict[str, tuple[str, ...]], told: str
):
    with pytest.raises(ValueError, match=told):
        select(**settings)


def test_levels_of_another_environment_are_refused_with_the_remedy():
    config = EnvConfig(name="counting", levels=("GoToRedBall",))
    without = [Task("counting", "train", index) for index in range(3)]
    with pytest.raises(
        ValueError, match=r"has no 'GoToRedBall': this environment has no levels; "
    ) as caught:
        select_tasks(config, CountingEnv.spec, without)
    assert str(caught.value).endswith("leave them out with 'env.levels=[]'")
    many = [Task("counting", "train", index, level=f"level-{index:02}") for index in range(40)]
    with pytest.raises(ValueError, match=r"level-00, .*, level-11 and 28 more; 'env.levels"):
        select_tasks(config, CountingEnv.spec, many)


def test_filters_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match=r"env\.categories.*env\.levels"):
        select(categories=("small",), levels=("c",))


def test_evaluation_draws_without_replacement_and_in_order():
    tasks = list(CountingEnv.tasks("test"))
    drawn = evaluation_tasks(tasks, 4, seed=1)
    assert len({task.index for task in drawn}) == 4
    assert drawn == sorted(drawn, key=lambda task: task.index)
    assert drawn == evaluation_tasks(tasks, 4, seed=1)
    others = [evaluation_tasks(tasks, 4, seed=seed) for seed in range(2, 6)]
    assert any(other != drawn for other in others)


@pytest.mark.parametrize("number", [10, 11, 1000])
def test_evaluation_takes_all_tasks_when_there_are_no_more(number: int):
    tasks = list(CountingEnv.tasks("test"))
    assert evaluation_tasks(tasks, number, seed=1) == tasks


def test_a_number_of_tasks_of_each_category_is_drawn_in_order():
    drawn = tasks_per_category(TASKS, 2, seed=0)
    assert [task.index for task in drawn] == sorted(task.index for task in drawn)
    assert Counter(task.category for task in drawn) == {"small": 2, "large": 2}
    assert drawn == tasks_per_category(TASKS, 2, seed=0)
    assert tasks_per_category(TASKS, 99, seed=0) == TASKS


def make_tasks(number: int) -> list[Task]:
    return [Task("counting", "train", index) for index in range(number)]


def test_without_solved_tasks_a_resting_sampler_is_an_epoch_sampler():
    tasks = make_tasks(7)
    resting, plain = RestingSampler(tasks, seed=3, rest=2), EpochSampler(tasks, seed=3)
    for step in range(1, 10):
        assert resting.take(4) == plain.take(step, 4)
    assert resting.num_resting == 0


@pytest.mark.parametrize("rest", [1, 3])
@pytest.mark.parametrize("number", [9, 10, 11])
def test_a_solved_task_misses_as_many_epochs_as_it_rests(rest: int, number: int):
    # The step that solves it ends in its epoch, with it, or in the next one.
    tasks = make_tasks(10)
    order = EpochSampler(tasks, seed=0).take(1, 10 * (rest + 2))
    sampler = RestingSampler(tasks, seed=0, rest=rest)
    solved = sampler.take(number)[4]
    sampler.let_rest([solved])
    assert sampler.num_resting == 1
    later = enumerate(order[number:], start=number)
    expected = [task for place, task in later if task != solved or place // 10 > rest]
    assert [sampler.take(1)[0] for _ in expected] == expected
    assert sampler.num_resting == 0


def test_a_step_takes_tasks_that_rest_when_there_are_not_enough_others():
    tasks = make_tasks(5)
    sampler = RestingSampler(tasks, seed=0, rest=100)
    sampler.take(5)
    sampler.let_rest(tasks[:4])
    taken = sampler.take(3)
    assert taken[0] == tasks[4], "the one that is awake, then the others as they come"
    assert len(set(taken)) > 1


def test_a_level_that_is_always_solved_gets_its_part_of_the_places():
    tasks = [
        Task("counting", "train", index, level="easy" if index % 2 else "hard")
        for index in range(4000)
    ]
    sampler, taken = RestingSampler(tasks, seed=0, rest=3), Counter[str]()
    for _ in range(20):
        step = sampler.take(48)
        assert len(step) == 48
        sampler.let_rest(task for task in step if task.level == "easy")
        taken.update(task.level for task in step)
    assert taken["easy"] / taken["hard"] == pytest.approx(1 / 4, abs=0.05)
    for _ in range(20):  # what is solved no longer comes back
        taken = Counter(task.level for task in sampler.take(48))
    assert 18 <= taken["easy"] <= 30


def test_a_level_that_was_solved_for_long_comes_back():
    # So few tasks that a step takes those that rest, too.
    tasks = [Task("counting", "train", index, level=f"level {index % 2}") for index in range(40)]
    sampler = RestingSampler(tasks, seed=0, rest=3)
    for _ in range(60):
        sampler.let_rest(task for task in sampler.take(40) if task.level == "level 0")
    steps = [sampler.take(10) for _ in range(20)]
    assert any(task.level == "level 0" for step in steps[:17] for task in step)
    assert {task.level for task in steps[-1]} == {"level 0", "level 1"}


def test_tasks_that_are_a_level_each_rest_as_long_as_tasks_do():
    levels = [Task("counting", "train", index, level=f"level {index}") for index in range(10)]
    plain = make_tasks(10)
    sampler, other = (RestingSampler(tasks, seed=1, rest=2) for tasks in (levels, plain))
    for number in [4] * 12 + [10] * 12 + [3] * 12:
        step, expected = sampler.take(number), other.take(number)
        assert [task.index for task in step] == [task.index for task in expected]
        sampler.let_rest(step[:3])
        other.let_rest(expected[:3])


def test_a_resting_sampler_goes_on_from_its_state():
    tasks = [Task("counting", "train", index, level=f"level {index % 3}") for index in range(12)]
    sampler, other = (RestingSampler(tasks, seed=5, rest=2) for _ in range(2))
    sampler.let_rest(sampler.take(7))
    other.load_state(json.loads(json.dumps(sampler.state())))
    for _ in range(6):
        assert other.take(5) == sampler.take(5)
        assert other.num_resting == sampler.num_resting


def tasks_of(kinds: str, split: str = "train") -> list[Task]:
    """Return tasks from words such as "a1": a category and a level."""
    return [
        Task("counting", split, index, category=kind[0], level=kind[1:])
        for index, kind in enumerate(kinds.split())
    ]


def test_spread_tasks_have_kinds_as_the_tasks_to_come():
    tasks = tasks_of("a1 " * 60 + "a2 " * 20 + "b1 " * 60)
    tested = tasks_of("a1 a2 b1 b1", "test")
    first = [task.category + task.level for task in spread_tasks(tasks, tested, seed=0)[:40]]
    assert Counter(first) == {"a1": 10, "a2": 10, "b1": 20}
    # Every fourth place begins a new part with each kind in its share.
    assert all(Counter(first[i : i + 4]) == {"a1": 1, "a2": 1, "b1": 2} for i in range(0, 40, 4))


def test_tasks_of_one_kind_are_spread_as_they_are_sampled():
    tasks = tasks_of("a1 " * 30)
    sampled = EpochSampler(tasks, seed=3).take(1, 30)
    assert spread_tasks(tasks, tasks, seed=3) == sampled
    assert spread_tasks(tasks, tasks_of("b2", "test"), seed=3) == sampled


def test_tasks_that_have_kinds_as_those_to_come_are_in_random_order():
    tasks = tasks_of("a1 b1 b1 " * 10)
    sampled = EpochSampler(tasks, seed=3).take(1, 30)
    assert spread_tasks(tasks, tasks_of("b1 a1 b1", "test"), seed=3) == sampled


def test_kinds_that_are_not_tested_are_spread_last():
    tasks = tasks_of("a1 c1 a9 b1 a1 b1")
    order = spread_tasks(tasks, tasks_of("a1 b1", "test"), seed=0)
    kinds = [task.category + task.level for task in order]
    assert sorted(kinds[:4]) == ["a1", "a1", "b1", "b1"] and kinds[4:] == ["a9", "c1"]


def test_levels_that_only_one_split_has_leave_categories_in_proportion():
    tasks = tasks_of(" ".join(f"a{n}" for n in range(9)) + " " + " ".join("bcb"))
    order = spread_tasks(tasks, tasks_of("a90 b91 b92", "test"), seed=0)
    assert [task.category for task in order[:3]].count("b") == 2 and order[-1].category == "c"
