"""The scenarios of AgentGym as a client sees them: fields on the wire, specs, and tasks.

Sending is in source.py. Instructions describe AgentGym's own rules, which are narrower than ours
(e.g. `pickup` is one word there), so that they hold for its servers and for ours.

A task's index is what a reset sends. BabyAI and SciWorld number as we do, so their tasks are ours.
TextCraft's numbers mean other goals on every machine and say nothing but a rough order by depth:
its tasks have no level, and every split takes numbers from the whole range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import did_you_mean
from agentgym_rl.types import Task

NUM_SCIWORLD_TASKS = 4639
"""AgentGym leaves out the tasks of our SciWorld from this index on."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How the servers of one scenario are spoken to."""

    name: str
    id_key: str = "id"
    """Names the environment in every call, and in the answer to a create that is an object."""
    index_key: str = "data_idx"
    """Names the task in a reset."""
    create_fields: tuple[tuple[str, int], ...] = ()
    reset_fields: tuple[tuple[str, int], ...] = ()
    """What a reset sends beside the id and the task."""
    asks_observation: bool = False
    """Whether the answer to a reset lacks the goal, which GET /observation then has."""
    done_key: str = "done"
    score_key: str | None = None
    """Names what has been earned since the reset; None where only `reward` is reported."""
    full_score: float = 1.0
    """What counts as 1 in our rewards."""
    pays_at_end: bool = False
    """Whether a reward before the end means something else."""
    nulls_info_of_bad_actions: bool = False
    """Whether `info` is null exactly when an action could not be done."""
    succeeds_with_any_score: bool = False
    """Whether a part of the full score is a success too, once the episode is over."""


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("textcraft"),
        Scenario("babyai", score_key="score", succeeds_with_any_score=True),
        Scenario("sciworld", score_key="score", full_score=100.0),
        Scenario("searchqa", "env_idx", "id", create_fields=(("id", 0),)),
        Scenario(
            "webarena",
            "env_idx",
            "idx",
            reset_fields=(("seed", 0),),
            asks_observation=True,
            done_key="terminated",
            pays_at_end=True,
            nulls_info_of_bad_actions=True,
        ),
    )
}


def scenario_of(env: str) -> Scenario:
    """Return the scenario of a name. Raises ValueError where AgentGym has no such scenario."""
    if env not in SCENARIOS:
        raise ValueError(
            f"AgentGym's dialect has no scenario {env!r}{did_you_mean(env, SCENARIOS)}; "
            f"it has {', '.join(SCENARIOS)}"
        )
    return SCENARIOS[env]


def spec_of(env: str) -> EnvSpec:
    """Return what an agent is told of a scenario. May import an environment."""
    if env == "babyai":
        return replace(registry.env_class(env).spec, instructions=_BABYAI)
    if env == "sciworld":
        return registry.env_class(env).spec
    return _SPECS[env]


@cache
def tasks_of(env: str, split: str) -> tuple[Task, ...]:
    """Return every task of a split. May import an environment."""
    if env == "babyai":
        return tuple(registry.env_class(env).tasks(split))
    if env == "sciworld":
        tasks = registry.env_class(env).tasks(split)
        return tuple(task for task in tasks if task.index < NUM_SCIWORLD_TASKS)
    if env == "searchqa":
        return tuple(
            Task(env, split, index, category=name)
            for name, indices in _QUESTIONS[split].items()
            for index in indices
        )
    size, num_test = _SIZES[env]
    # Evenly over the range, because the numbers rise with difficulty or go site by site.
    test = {(2 * number + 1) * size // (2 * num_test) for number in range(num_test)}
    return tuple(
        Task(env, split, index, category=_ALL)
        for index in range(size)
        if (index in test) == (split == "test")
    )


_ALL = "all"

_SIZES = {"textcraft": (544, 100), "webarena": (812, 100)}
"""How many tasks a scenario has, and how many of them we test on."""

_QUESTIONS: Mapping[str, Mapping[str, range]] = {
    "train": {"nq": range(51713, 130881), "hotpotqa": range(130881, 221328)},
    "test": {
        "nq": range(3610),
        "triviaqa": range(3610, 14923),
        "popqa": range(14923, 29190),
        "hotpotqa": range(29190, 36595),
        "2wikimultihopqa": range(36595, 49171),
        "musique": range(49171, 51588),
        "bamboogle": range(51588, 51713),
    },
}

_TEXTCRAFT = """\
You craft one Minecraft item. First you see crafting commands, some of which you do not need, and \
the goal. Every round you do one action:
get N ITEM
    Fetch a raw item, one that no command makes. Example: get 2 oak log
craft N ITEM using N INGREDIENT, N INGREDIENT
    Use a crafting command once, with exactly its numbers.
inventory
    See what you hold.
Name every quantity. Where a command asks for a general ingredient such as planks, name one kind \
of it, such as oak planks."""

_BABYAI = """\
You are in a grid of rooms and see a part of it in front of you. You have to reach the goal that \
the first observation states. Things are named by colour, kind and number. Your actions:
turn left
turn right
move forward
go to <thing>
pickup <thing>
drop
go through <open door>
toggle and go through <closed door, or locked door whose key you carry>
toggle
"toggle" works on the door directly in front of you. You can carry one object."""

_SEARCHQA = """\
You answer a question, with a search engine at hand. Every round you do one action: search, with a \
query, finds passages, which come back between <information> tags, and answer, with a few words, \
answers the question. Search as often as you need to."""

_WEBARENA = """\
You use a web browser to reach an objective. You see the open tabs, the accessibility tree of the \
current page, whose elements have numbers in brackets, and the objective. An action is text with \
one command between triple backticks:
click [id]
hover [id]
type [id] [text] [1 to press Enter afterwards, else 0]
press [key or combination]
scroll [up or down]
goto [url]
new_tab
tab_focus [number]
close_tab
go_back
go_forward
stop [answer]
"stop" ends the task; leave the answer empty where none is asked for, and write N/A where the \
objective cannot be reached."""

_SPECS: Mapping[str, EnvSpec] = {
    "textcraft": EnvSpec(
        name="textcraft",
        summary="Craft Minecraft items with text commands (an AgentGym server)",
        instructions=_TEXTCRAFT,
        example_action="get 2 oak log",
        splits=("train", "test"),
        categories=(_ALL,),
        max_rounds=30,
        success="the goal item is crafted",
    ),
    "searchqa": EnvSpec(
        name="searchqa",
        summary="Answer questions with a search engine (an AgentGym server)",
        instructions=_SEARCHQA,
        example_action="<search> height of the Eiffel Tower </search>",
        splits=("train", "test"),
        categories=tuple(_QUESTIONS["test"]),
        max_rounds=10,
        success="the answer is one of the accepted ones",
        action_tags=("search", "answer"),
        has_answer=True,
    ),
    "webarena": EnvSpec(
        name="webarena",
        summary="Reach objectives on web sites (an AgentGym server)",
        instructions=_WEBARENA,
        example_action="```click [12]```",
        splits=("train", "test"),
        categories=(_ALL,),
        max_rounds=15,
        success="the evaluators of the task accept the final state",
    ),
}
