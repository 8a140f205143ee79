"""The environments of a run, opened: labels, weights of demonstrations, tools in prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from agentgym_rl.config import parse_config
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.experiment.demonstrations import apportioned, demonstrations
from agentgym_rl.experiment.environments import OpenedEnv, opened_envs, with_shared_tools
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.objects import Objects
from chat_families import small_policy
from fakes import CountingEnv, fake_spec
from tool_templates import tool_tokenizer

TABLE = {
    "envs": {
        "easy": {"name": "fakes:CountingEnv", "weight": 3},
        "hard": {"name": "fakes:CountingEnv", "options": {"largest": 1}, "categories": ["large"]},
        "tested": {"name": "fakes:CountingEnv", "weight": 0},
    },
    "agent": {"format": "direct"},
    "rounds": {"type": "fixed", "rounds": 20},
}


class Searching(CountingEnv):
    """Has two tools in the place of one."""

    spec: ClassVar[EnvSpec] = fake_spec(
        "searching", example_action="<search>a</search>", action_tags=("search", "answer")
    )


TOOLS: dict[str, object] = {
    "envs": {"counting": {"name": "fakes:CountingEnv"}, "searching": {"name": "x:Searching"}},
    "agent": {"format": "function_call"},
    "eval": {"tasks": 0},
}


async def opened(*overrides: str, table: Mapping[str, object] = TABLE) -> list[OpenedEnv]:
    config = parse_config(table, overrides, source="test")
    classes = {"counting": CountingEnv, "searching": Searching} if table is TOOLS else {}
    async with opened_envs(config, Objects(envs=classes)) as envs:
        return envs


async def test_tasks_to_evaluate_on_bear_the_label_and_the_expert_sees_the_environments_own():
    easy, hard, tested = await opened("eval.tasks=4")
    assert {task.env for task in hard.tasks} == {"counting"}
    assert {task.category for task in hard.tasks} == {"large"}
    assert [task.env for task in hard.eval_tasks] == ["hard"] * 4
    assert (easy.weight, hard.weight, tested.weight) == (3, 1, 0)


async def test_demonstrations_are_asked_of_each_expert_by_weight():
    envs = await opened()
    found = demonstrations(envs, 8, progress=Progress())
    by_goal = [int(item.messages[0].content.split("Goal: ")[1].split(".")[0]) for item in found]
    assert len(found) == 8 and sum(goal > 10 for goal in by_goal[6:]) == 2, "two of `hard`"
    longest = max(len(item.messages) for item in found[:6])
    assert all(len(item.messages) > longest for item in found[6:]), "which adds 1 by 1"


async def test_an_environment_without_an_expert_is_named():
    envs = await opened("envs.hard.rounds={type = 'fixed', rounds = 2}", "eval.max_rounds=2")
    with pytest.raises(ConfigError, match="no expert that solves a task within 2 rounds"):
        demonstrations(envs, 8, progress=Progress())


async def test_a_mistake_names_the_table_that_has_it():
    with pytest.raises(ConfigError, match=r"envs\.hard: envs\.hard\.levels: counting has no 'x'"):
        await opened("envs.hard.levels=['x']")


@pytest.mark.parametrize(
    ("number", "weights", "parts"),
    [
        (8, {"a": 3.0, "b": 1.0, "c": 0.0}, {"a": 6, "b": 2, "c": 0}),
        (10, {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 4, "b": 3, "c": 3}),
        (2, {"a": 0.1, "b": 0.9}, {"a": 0, "b": 2}),
        (256, {"only": 7.0}, {"only": 256}),
    ],
)
def test_whole_numbers_in_the_proportion_of_weights(
    number: int, weights: dict[str, float], parts: dict[str, int]
):
    assert apportioned(number, weights) == parts


def hermes_policy() -> Policy:
    plain = small_policy("qwen3")
    return replace(plain, renderer=ChatRenderer(tool_tokenizer("hermes")))


async def test_prompts_show_the_tools_of_their_own_environment():
    envs, policy = await opened(table=TOOLS), hermes_policy()
    assert envs[0].agent.tools != envs[1].agent.tools
    shared = with_shared_tools(policy, envs)
    assert not shared.renderer.shows_tools
    assert with_shared_tools(policy, envs[:1]).renderer.shows_tools
    for env in (env.for_policy(policy) for env in envs):
        assert env.renderer is not None and env.renderer.shows_tools
        prompt = policy.tokenizer.decode(env.renderer.prompt("Go."))
        assert all(tool["function"]["name"] in prompt for tool in env.agent.tools)


async def test_what_does_not_say_where_it_belongs_is_not_rendered_with_tools_that_differ():
    envs = await opened("algorithm.type=sft", "algorithm.data=x.jsonl", table=TOOLS)
    with pytest.raises(ConfigError, match=r"tools of counting, searching.*data=x\.jsonl"):
        with_shared_tools(hermes_policy(), envs)
    assert with_shared_tools(small_policy("qwen3", "gemma"), envs), "its template shows no tools"
