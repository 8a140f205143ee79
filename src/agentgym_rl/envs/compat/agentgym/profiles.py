"""What each scenario of AgentGym says on the wire: field names, scales and routes of its own.

A profile turns a `NumberedEpisode` into answers. Extra keys never hurt a stock client, missing ones
do, so the answer to a mistake carries every key that the scenario's client may read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from agentgym_rl.envs.base import JsonValue
from agentgym_rl.envs.compat.agentgym.numbered_episodes import NumberedEpisode, RefusedError
from agentgym_rl.envs.compat.agentgym.scenarios import NUM_SCIWORLD_TASKS
from agentgym_rl.envs.compat.agentgym.task_index import IndexRule
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.runs.pictures import data_address
from agentgym_rl.types import StepResult

Fields = dict[str, JsonValue]
View = Callable[[EpisodeService, NumberedEpisode], Awaitable[JsonValue]]
"""Answers a route that only wants the id of an episode which has started."""

_MAX_HINTS = 10


class Profile:
    """The shapes of TextCraft, and of every environment that AgentGym does not have."""

    starts_on_create: ClassVar[bool] = True
    """Whether a create resets as well, to the task whose index is the new id."""
    needs_index: ClassVar[bool] = False
    """Whether a reset must name its task."""
    needs_create_body: ClassVar[bool] = True
    is_shut_after_end: ClassVar[bool] = False
    """Whether nothing but a reset is answered after the end."""
    index_rule: ClassVar[IndexRule] = IndexRule.CYCLIC
    num_levels: ClassVar[int] = 1
    max_tasks: ClassVar[int | None] = None
    """How many of our tasks AgentGym knows, if not all."""
    field_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """The scenario's names of fields in requests, where they are not TextCraft's."""
    names_first_task: ClassVar[bool] = False
    """Whether a create names the task to start with."""
    refusal_status: ClassVar[int] = 200
    """Status of the answer to a mistake."""

    def greeting(self, env: str) -> str:
        """Answer GET /."""
        return f"This is an environment server for {env}."

    def get_views(self) -> Mapping[str, View]:
        """Return the routes, beyond the common ones, that read an episode."""
        return {"/goal": _goal, "/commands": _commands, "/available_actions": _available_actions}

    def post_views(self) -> Mapping[str, View]:
        """Return the routes like these that are posted."""
        return {}

    async def begin(self, service: EpisodeService, numbered: NumberedEpisode) -> None:
        """Complete an episode after its reset."""

    async def settle(
        self, service: EpisodeService, numbered: NumberedEpisode, result: StepResult
    ) -> None:
        """Set reward and score of an episode after a step."""
        numbered.reward = result.reward
        numbered.score += result.reward

    def created(self, numbered: NumberedEpisode) -> JsonValue:
        """Answer a create that does not start a task, or one that names it."""
        return {"id": numbered.id}

    def started(self, numbered: NumberedEpisode) -> JsonValue:
        return {"id": numbered.id, **self.stepped(numbered)}

    def stepped(self, numbered: NumberedEpisode) -> Fields:
        return {
            "observation": numbered.observation,
            "reward": _number(numbered.reward),
            "done": numbered.is_done,
        }

    def observed(self, numbered: NumberedEpisode) -> JsonValue:
        """Answer GET /observation, also before the first reset."""
        if numbered.task is None:
            raise RefusedError(NOT_STARTED, numbered)
        return numbered.observation

    def detailed(self, numbered: NumberedEpisode) -> Fields:
        return {**self.stepped(numbered), "deleted": False}

    def closed(self, was_open: bool) -> JsonValue:
        """Answer a close."""
        return was_open

    def action_of(self, text: str) -> str:
        """Return the action in what a client sends."""
        return text

    def refused(self, id_: int, error: RefusedError) -> Fields:
        """Return the answer to a mistake: done, so that a loop that knows no `error` ends."""
        return {
            "error": str(error),
            "id": id_,
            "observation": str(error),
            "reward": 0,
            "done": True,
            "deleted": error.numbered is None,
        }


class ScoredProfile(Profile):
    """What BabyAI and SciWorld have in common: a `score`, which the client reports."""

    starts_on_create = False
    needs_index = True
    needs_create_body = False
    is_shut_after_end = True

    def started(self, numbered: NumberedEpisode) -> JsonValue:
        return self.detailed(numbered)

    def stepped(self, numbered: NumberedEpisode) -> Fields:
        return {
            "observation": numbered.observation,
            "reward": numbered.reward,
            "score": numbered.score,
            "done": numbered.is_done,
        }

    def refused(self, id_: int, error: RefusedError) -> Fields:
        score = error.numbered.score if error.numbered else 0
        return {**super().refused(id_, error), "score": score}


class BabyAIProfile(ScoredProfile):
    """BabyAI: the client reports `score`, the rewards so far."""

    index_rule = IndexRule.ENDLESS
    num_levels = 40

    def get_views(self) -> Mapping[str, View]:
        return {"/goal": _goal, "/available_actions": _available_actions}

    def post_views(self) -> Mapping[str, View]:
        return {"/render": _render}

    def observed(self, numbered: NumberedEpisode) -> JsonValue:
        if numbered.task is None:
            return {**self.detailed(numbered), "observation": NOT_STARTED}
        return self.detailed(numbered)


class SciWorldProfile(ScoredProfile):
    """SciWorld: `score` is a whole percentage, `reward` its change."""

    index_rule = IndexRule.WRAPPED
    max_tasks = NUM_SCIWORLD_TASKS

    def get_views(self) -> Mapping[str, View]:
        return {
            "/goal": _goal,
            "/available_actions": _available_actions,
            "/action_hint": _action_hint,
            "/goals": _goals,
            "/task_description": _task_description,
            "/object_tree": _object_tree,
            "/state": _state,
        }

    async def begin(self, service: EpisodeService, numbered: NumberedEpisode) -> None:
        facts = await service.details(numbered.episode)
        description = str(facts.get("task_description", ""))
        numbered.facts = {
            "task_name": facts.get("task_name", ""),
            "var_num": facts.get("variation", 0),
            "task_description": description,
        }
        # The client puts the description before the first observation itself.
        numbered.observation = numbered.observation.removeprefix(description).lstrip("\n")
        numbered.score = _int(facts.get("score", 0))

    async def settle(
        self, service: EpisodeService, numbered: NumberedEpisode, result: StepResult
    ) -> None:
        # The simulator's own score can fall below what rewards may express.
        score = _int((await service.details(numbered.episode)).get("score", 0))
        numbered.reward, numbered.score = score - numbered.score, score

    def detailed(self, numbered: NumberedEpisode) -> Fields:
        return {**numbered.facts, **super().detailed(numbered)}

    def refused(self, id_: int, error: RefusedError) -> Fields:
        blank: Fields = {"task_name": "", "var_num": 0, "task_description": ""}
        return {**blank, **super().refused(id_, error)}

    async def stepped_visually(self, service: EpisodeService, numbered: NumberedEpisode) -> Fields:
        """Answer /step_visual: a step with what a viewer draws."""
        facts = await service.details(numbered.episode)
        return {
            **self.stepped(numbered),
            "info": dict(facts),
            "object_tree": facts.get("object_tree", {}),
            "inventory": facts.get("inventory", ""),
            "moves": facts.get("moves", numbered.next_round),
        }


class SearchQAProfile(Profile):
    """SearchQA: bare values for answers, and mistakes are HTTP failures.

    An action is the whole text of the model, in which the environment finds the element. The
    observation of a task is always its prompt, never the last search.
    """

    names_first_task = True
    needs_index = True
    index_rule = IndexRule.WRAPPED
    field_names = MappingProxyType({"env_idx": "id", "id": "data_idx"})
    refusal_status = 400

    def greeting(self, env: str) -> str:
        return "ok"

    def get_views(self) -> Mapping[str, View]:
        return {}

    async def begin(self, service: EpisodeService, numbered: NumberedEpisode) -> None:
        numbered.observation = f"{_SEARCH_PROMPT}\n\n {numbered.observation}"
        numbered.facts = {"prompt": numbered.observation}

    def created(self, numbered: NumberedEpisode) -> JsonValue:
        return numbered.id

    def started(self, numbered: NumberedEpisode) -> JsonValue:
        return numbered.observation

    def stepped(self, numbered: NumberedEpisode) -> Fields:
        return {
            "observation": numbered.observation,
            "reward": numbered.reward,
            "done": numbered.is_done,
            "info": None,
        }

    def observed(self, numbered: NumberedEpisode) -> JsonValue:
        super().observed(numbered)
        return numbered.facts["prompt"]


class WebArenaProfile(Profile):
    """WebArena: the goal is beside the first observation, and GET /observation has the prompt.

    An action is what is between the first triple backticks of a text.
    """

    starts_on_create = False
    needs_index = True
    needs_create_body = False
    index_rule = IndexRule.WRAPPED
    field_names = MappingProxyType({"env_idx": "id", "idx": "data_idx"})

    def greeting(self, env: str) -> str:
        return "ok"

    def get_views(self) -> Mapping[str, View]:
        return {"/observation_metadata": _picture}

    async def begin(self, service: EpisodeService, numbered: NumberedEpisode) -> None:
        numbered.facts = await service.details(numbered.episode)

    async def settle(
        self, service: EpisodeService, numbered: NumberedEpisode, result: StepResult
    ) -> None:
        await super().settle(service, numbered, result)
        numbered.facts = {**numbered.facts, "is_valid": result.valid_action}

    def created(self, numbered: NumberedEpisode) -> JsonValue:
        return {"env_idx": numbered.id}

    def started(self, numbered: NumberedEpisode) -> JsonValue:
        return {
            "observation": numbered.observation,
            "sites": numbered.facts.get("sites", []),
            "object": numbered.facts.get("goal", ""),
        }

    def stepped(self, numbered: NumberedEpisode) -> Fields:
        return {
            "observation": numbered.observation,
            "reward": float(numbered.reward),
            "terminated": numbered.is_done,
            "truncated": False,
            "info": {"fail_error": ""} if numbered.facts.get("is_valid", True) else None,
        }

    def observed(self, numbered: NumberedEpisode) -> JsonValue:
        super().observed(numbered)
        if numbered.observation.startswith("OBSERVATION:"):
            return numbered.observation
        goal = numbered.facts.get("goal", "")
        return f"OBSERVATION:\n{numbered.observation}\nOBJECTIVE: {goal}"

    def closed(self, was_open: bool) -> JsonValue:
        return {"closed": "closed" if was_open else "There is no such environment."}

    def action_of(self, text: str) -> str:
        parts = text.split("```")
        return parts[1].strip() if len(parts) > 2 else text

    def refused(self, id_: int, error: RefusedError) -> Fields:
        answer = {**super().refused(id_, error), "env_idx": id_, "terminated": True}
        return {**answer, "truncated": False, "info": None, "sites": [], "object": ""}


_SEARCH_PROMPT = """\
Answer the question below. Whenever you have new information, reason about it first between \
<think> and </think>. If you find that you lack knowledge, call the search engine by <search> \
query </search> and stop; the best results come back between <information> and </information>. \
You can search as often as you like. When you need no more, give the answer alone between <answer> \
and </answer>, without an explanation, for example <answer> Beijing </answer>."""

NOT_STARTED = "No task has been started: reset first."
OVER = "The task is over: reset first."

PROFILES: Mapping[str, type[Profile]] = {
    "textcraft": Profile,
    "babyai": BabyAIProfile,
    "sciworld": SciWorldProfile,
    "searchqa": SearchQAProfile,
    "webarena": WebArenaProfile,
}


def profile_of(env: str) -> Profile:
    return PROFILES.get(env, Profile)()


async def _goal(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    facts = await service.details(numbered.episode)
    for name in ("goal", "mission", "task_description"):
        if name in facts:
            return facts[name]
    raise RefusedError("This environment has no goal apart from its observations.", numbered)


async def _commands(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    return (await service.details(numbered.episode)).get("commands", [])


async def _available_actions(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    return {"available_actions": await service.available_actions(numbered.episode)}


async def _render(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    picture = await service.render(numbered.episode)
    if picture is None:
        raise RefusedError("There is nothing to draw.", numbered)
    return data_address(picture)


async def _picture(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    """Answer WebArena's viewers; the elements of a page stay in the server."""
    return {"text": {"obs_nodes_info": {}}, "image": await _render(service, numbered)}


async def _action_hint(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    return await _hints(service, numbered, await service.details(numbered.episode))


async def _goals(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    return {"goals": (await service.details(numbered.episode)).get("goal_progress", "")}


async def _task_description(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    return {"task_description": numbered.facts.get("task_description", "")}


async def _object_tree(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    return {"object_tree": (await service.details(numbered.episode)).get("object_tree", {})}


async def _state(service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
    facts = await service.details(numbered.episode)
    hints = await _hints(service, numbered, facts)
    return {
        "observation": numbered.observation,
        "inventory": facts.get("inventory", ""),
        "task_description": numbered.facts.get("task_description", ""),
        "goal_progress": facts.get("goal_progress", ""),
        "possible_actions": hints["possible_actions"][:_MAX_HINTS],
        "possible_objects": hints["possible_objects"][:_MAX_HINTS],
        "current_moves": facts.get("moves", numbered.next_round),
        "environment_info": {**numbered.facts, "score": numbered.score, "done": numbered.is_done},
    }


async def _hints(
    service: EpisodeService, numbered: NumberedEpisode, facts: Mapping[str, JsonValue]
) -> dict[str, list[str]]:
    """Return what may be done and to what; actions in full where there are no templates."""
    actions = _texts(facts.get("possible_actions"))
    return {
        "possible_actions": actions or list(await service.available_actions(numbered.episode)),
        "possible_objects": _texts(facts.get("possible_objects")),
    }


def _texts(value: JsonValue) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Sequence) else []


def _int(value: JsonValue) -> int:
    return round(value) if isinstance(value, int | float) else 0


def _number(value: float) -> int | float:
    """Return a whole number as an integer: TextCraft's rewards are 0 and 1, not 1.0."""
    return int(value) if value == int(value) else value
