"""Nothing that is tested is trained on: the lists of tasks of the five scenarios.

The web's sites are not built here: `test_splits_share_no_objective` (test_web_shop.py) compares the
texts of its tasks.
"""

from __future__ import annotations

import itertools

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.scenarios.babyai.levels import level_of, seed_of
from agentgym_rl.envs.scenarios.searchqa.embedded import SPLITS, embedded_questions
from agentgym_rl.envs.scenarios.web.table import HELD_OUT
from agentgym_rl.envs.scenarios.web.templates import all_templates
from agentgym_rl.rollout.tasks import spread_tasks

LISTED = ("textcraft", "babyai", "sciworld", "searchqa")


@pytest.mark.parametrize("name", LISTED)
def test_no_task_is_in_two_splits(name: str):
    cls = registry.env_class(name)
    indices = {split: {task.index for task in cls.tasks(split)} for split in cls.spec.splits}
    for one, other in itertools.combinations(indices, 2):
        assert indices[one] and not indices[one] & indices[other], f"{one} and {other}"


@pytest.mark.parametrize("name", LISTED)
def test_demonstrations_are_of_training_tasks(name: str):
    cls = registry.env_class(name)
    train, tested = cls.tasks("train"), cls.tasks("test")
    shown = spread_tasks(train, tested, seed=0)
    assert len(shown) == len(train) and set(shown) == set(train)
    assert not {task.id for task in shown} & {task.id for task in tested}


def test_no_goal_of_textcraft_is_crafted_in_training_and_tested():
    cls = registry.env_class("textcraft")
    goals = {split: {task.level for task in cls.tasks(split)} for split in ("train", "test")}
    assert not goals["train"] & goals["test"]


def test_a_world_of_babyai_is_in_one_split():
    cls = registry.env_class("babyai")
    worlds = {
        split: {(level_of(task.index).name, seed_of(task.index)) for task in cls.tasks(split)}
        for split in ("train", "test")
    }
    assert not worlds["train"] & worlds["test"]


def test_questions_share_neither_text_nor_hidden_entity():
    # Films are named in questions; what is hidden in them is a person, a city or a country.
    texts, hidden = dict[str, set[str]](), dict[str, set[str]]()
    for split in SPLITS:
        questions = embedded_questions(split)
        texts[split] = {question.text for question in questions}
        gold = {passage for question in questions for passage in question.gold}
        hidden[split] = {passage for passage in gold if not passage.startswith("film-")}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not texts[one] & texts[other]
        assert hidden[one] and not hidden[one] & hidden[other]


def test_templates_of_the_web_are_in_one_split_from_level_3_on_and_its_held_out_sites_in_one():
    templates = all_templates()
    assert {one.split for one in templates if one.level >= 3} == {"train", "test", HELD_OUT}
    sites = {
        is_held_out: {s for t in templates if (t.split == HELD_OUT) == is_held_out for s in t.sites}
        for is_held_out in (True, False)
    }
    assert sites[True] and sites[False] and not sites[True] & sites[False]
