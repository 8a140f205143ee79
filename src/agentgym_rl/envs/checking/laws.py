"""The laws of envs/base.py by name, each with its remedy, and those that a single value can break.

What takes several calls to find out (determinism, isolation, experts) is in `checker.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.tools.described import parameters_of, tool_name
from agentgym_rl.envs.tools.text import MalformedCallError, is_tool_name, read_call
from agentgym_rl.frozen import named_numbers, parts_sum_to
from agentgym_rl.runs.pictures import picture_kind
from agentgym_rl.types import StepResult, Task

_TAG = re.compile(r"[a-z][a-z0-9_-]*")
_RESERVED_TAGS = ("think", "action", "act")


class Law(Enum):
    """What an environment must keep to; the value is the sentence with the remedy."""

    COMPLETE = "The class must have `spec`, an EnvSpec, and implement tasks, reset and step."
    SPEC_TEXTS = (
        "name, summary, instructions and example_action of spec must be texts, none of them blank."
    )
    SPEC_SPLITS = "spec.splits must be a tuple of names, at least one, each once."
    SPEC_CATEGORIES = "spec.categories must be a tuple of names, at least one, each once."
    SPEC_ROUNDS = "spec.max_rounds must be a whole number, at least 1."
    SPEC_REWARDS = "spec.reward_range must be two finite numbers, the lower first."
    SPEC_TAGS = (
        "spec.action_tags must be a tuple of lower-case names, none of think, action and act."
    )
    SPEC_TOOLS = (
        "spec.tools must be schemas of functions with different names and JSON schemas of objects "
        "as parameters; with tools, example_action must be a call of one, and action_tags empty."
    )
    CONSTRUCTS = (
        "The constructor must work with its default options: give each option a default, and say "
        "in the error what is missing on this machine."
    )
    SPLITS_HAVE_TASKS = (
        "tasks must list Task objects for every split that spec.splits names, at least one: drop "
        "a split without tasks."
    )
    SAME_TASKS = "tasks must give the same list every time, in every process: sort what it reads."
    TASK_NAMES = "A task must carry spec.name and the split it was listed under."
    KNOWN_CATEGORIES = "Every task's category must be in spec.categories."
    UNIQUE_INDEX = "Task.index must be unique over all splits: continue the numbers across them."
    REFUSES_UNKNOWN_TASKS = (
        "tasks and reset must raise ValueError for an unknown split or task: call "
        "require_split(split), and compare index, level and payload with the known tasks."
    )
    STARTS_EVERY_TASK = (
        "reset must start every task that tasks lists, any number of times, with text that states "
        "the goal."
    )
    ANY_TEXT_IS_AN_ACTION = (
        "step must not raise for what an agent wrote, in any round: answer a bad action with "
        'StepResult("...", valid_action=False).'
    )
    STEP_RESULT = (
        "step must return a StepResult whose observation is str and whose flags are bool: convert "
        "NumPy's with str() and bool()."
    )
    FINITE_REWARD = "StepResult.reward must be a finite float: convert NumPy's with float()."
    SUCCESS_ENDS = "success implies terminated: set both."
    REWARDS_IN_RANGE = (
        "The rewards of an episode must sum to a value in spec.reward_range in whatever round a "
        "limit cuts it: widen the range, or stop paying."
    )
    NAMED_NUMBERS = (
        "StepResult.metrics and reward_parts must be finite numbers with names like identifiers, "
        "at most 64."
    )
    REWARD_PARTS = (
        "StepResult.reward_parts must sum to StepResult.reward: give the sum as the reward."
    )
    SAME_EVERY_TIME = (
        "The same task and actions must give the same results, however long the episode: draw "
        "from random.Random(task.seed) and keep nothing from the last episode."
    )
    SAME_IN_EVERY_PROCESS = (
        "The same task and actions must give the same results in every process: sort sets before "
        "iterating over them, and use neither hash() nor id()."
    )
    LOOKING_CHANGES_NOTHING = (
        "available_actions, expert_action, details and render must not change the episode."
    )
    OWN_STATE = (
        "Two objects must not share state: move class attributes, module globals and global "
        "random generators into the object."
    )
    LISTED_ACTIONS = (
        "available_actions must return a tuple of texts, each a valid action now: list fewer."
    )
    EXPERT_SOLVES = (
        "An expert must solve its task: return None from expert_action where there is no expert."
    )
    PLAIN_DETAILS = (
        "details must return a mapping of plain JSON, an empty one where there is nothing to say: "
        "convert NumPy's numbers with float() or int(), sets with sorted(), objects with str()."
    )
    PICTURE_OR_NOTHING = (
        "render must return the bytes of a PNG or JPEG file, or None where there is no picture."
    )
    EXTRAS_DO_NOT_RAISE = (
        "available_actions, expert_action, details and render must not raise, even after the end: "
        "return an empty value where there is nothing to say."
    )
    CLOSES_ANY_TIME = (
        "close must be harmless at any time: before the first reset, and when repeated."
    )
    CALLS_RETURN = (
        "Every call must return in time: a server would give up on it too. The check ended there."
    )

    @property
    def title(self) -> str:
        """The name in reports, such as "same-every-time"."""
        return self.name.lower().replace("_", "-")


_RAISED = {
    "the constructor": Law.CONSTRUCTS,
    "tasks": Law.SPLITS_HAVE_TASKS,
    "reset": Law.STARTS_EVERY_TASK,
    "step": Law.ANY_TEXT_IS_AN_ACTION,
    "close": Law.CLOSES_ANY_TIME,
}


def raising_law(call: str) -> Law:
    """Return what a call that raised has broken."""
    return _RAISED.get(call, Law.EXTRAS_DO_NOT_RAISE)


def is_broken_details(details: object) -> bool:
    if not isinstance(details, Mapping):
        return True
    try:
        json.dumps(dict(details), allow_nan=False)
    except (TypeError, ValueError):
        return True
    return False


def is_broken_picture(picture: object) -> bool:
    is_picture = isinstance(picture, bytes) and picture_kind(picture) is not None
    return picture is not None and not is_picture


def is_broken_list(actions: object) -> bool:
    if not isinstance(actions, Sequence) or isinstance(actions, str):
        return True
    return not all(isinstance(action, str) for action in actions)


def spec_problems(spec: EnvSpec) -> Iterator[tuple[Law, object]]:
    """Yield what is wrong with a spec: the law and the value. A spec may hold anything."""
    texts = (spec.name, spec.summary, spec.instructions, spec.example_action)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        yield Law.SPEC_TEXTS, texts
    if not _are_names(spec.splits):
        yield Law.SPEC_SPLITS, spec.splits
    if not _are_names(spec.categories):
        yield Law.SPEC_CATEGORIES, spec.categories
    if type(spec.max_rounds) is not int or spec.max_rounds < 1:
        yield Law.SPEC_ROUNDS, spec.max_rounds
    if not _is_range(spec.reward_range):
        yield Law.SPEC_REWARDS, spec.reward_range
    if spec.action_tags != () and not (
        _are_names(spec.action_tags)
        and all(_TAG.fullmatch(tag) and tag not in _RESERVED_TAGS for tag in spec.action_tags)
    ):
        yield Law.SPEC_TAGS, spec.action_tags
    if spec.tools:
        yield from _tool_problems(spec)


def _tool_problems(spec: EnvSpec) -> Iterator[tuple[Law, object]]:
    names = [tool_name(tool) for tool in spec.tools]
    if spec.action_tags or len(set(names)) < len(names) or not all(map(is_tool_name, names)):
        yield Law.SPEC_TOOLS, (names, spec.action_tags)
        return
    for tool in spec.tools:
        function = tool.get("function")
        parameters = function.get("parameters") if isinstance(function, Mapping) else None
        is_object = isinstance(parameters, Mapping) and parameters.get("type") == "object"
        if tool.get("type") != "function" or not is_object:
            yield Law.SPEC_TOOLS, tool
    try:
        read_call(spec.example_action, parameters_of(spec.tools))
    except MalformedCallError as error:
        yield Law.SPEC_TOOLS, f"{spec.example_action!r}: {error}"


def task_problems(task: Task, spec: EnvSpec, split: str) -> Iterator[Law]:
    """Yield the laws that a listed task breaks by itself."""
    if (task.env, task.split) != (spec.name, split):
        yield Law.TASK_NAMES
    if task.category not in spec.categories:
        yield Law.KNOWN_CATEGORIES


def result_problems(result: StepResult) -> Iterator[tuple[Law, str]]:
    """Yield the laws that an answer breaks, and with what."""
    shown = str(result)[:200]
    if not isinstance(result, StepResult):
        yield Law.STEP_RESULT, repr(result)[:200]
        return
    flags = (result.terminated, result.truncated, result.success, result.valid_action)
    if not isinstance(result.observation, str) or not all(type(flag) is bool for flag in flags):
        yield Law.STEP_RESULT, shown
    if not _is_number(result.reward):
        yield Law.FINITE_REWARD, shown
    if result.success and not result.terminated:
        yield Law.SUCCESS_ENDS, shown
    try:
        named_numbers(result.metrics, "metrics")
        parts = named_numbers(result.reward_parts, "reward_parts")
    except (TypeError, ValueError) as error:
        yield Law.NAMED_NUMBERS, str(error)
        return
    if parts and _is_number(result.reward) and not parts_sum_to(parts, result.reward):
        yield Law.REWARD_PARTS, shown


def _are_names(values: object) -> bool:
    """Whether this is a tuple of texts, at least one, each once. A text itself is none."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        return False
    are_texts = all(isinstance(value, str) and value for value in values)
    return are_texts and len(set(values)) == len(values)


def _is_range(bounds: object) -> bool:
    if not isinstance(bounds, Sequence) or len(bounds) != 2:
        return False
    return all(map(_is_number, bounds)) and bounds[0] < bounds[1]


def _is_number(value: object) -> bool:
    """Whether this is a finite number of Python's own, or NumPy's float64, which is one."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return False
    return math.isfinite(value)
