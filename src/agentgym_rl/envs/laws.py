"""The laws of envs/base.py that a single value can break, each as a sentence with its remedy.

What takes several calls to find out (determinism, isolation, experts) is in `checker.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.frozen import named_numbers, parts_sum_to
from agentgym_rl.types import StepResult

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TAG = re.compile(r"[a-z][a-z0-9_-]*")
_RESERVED_TAGS = ("think", "action", "act")

_RAISED = {
    "the constructor": "The constructor must work with its default options: give each option a "
    "default, and say in the error what is missing on this machine.",
    "tasks": "tasks must list every split that spec.splits names.",
    "reset": "reset must be able to start every task that tasks() lists, any number of times.",
    "step": "step must not raise for what an agent wrote: answer a bad action with "
    'StepResult("...", valid_action=False).',
    "close": "close must be harmless at any time: before the first reset, and when repeated.",
}


def raising_law(call: str) -> str:
    """Return what a call that raised should have done."""
    default = f"{call} must not raise: return an empty value where there is nothing to say."
    return _RAISED.get(call, default)


def details_problems(details: object) -> Iterator[str]:
    """Yield the laws that the answer of `details` breaks."""
    if not isinstance(details, Mapping):
        yield "details must return a mapping; an empty one where there is nothing to say."
        return
    try:
        json.dumps(dict(details), allow_nan=False)
    except (TypeError, ValueError):
        yield (
            "details must be plain JSON: convert NumPy's numbers with float() or int(), sets with "
            "sorted(), objects with str()."
        )


def render_problems(picture: object) -> Iterator[str]:
    """Yield the laws that the answer of `render` breaks."""
    if picture is None:
        return
    if not isinstance(picture, bytes) or not picture.startswith(_PNG_SIGNATURE):
        yield "render must return the bytes of a PNG file, or None where there is no picture."


def spec_problems(spec: EnvSpec) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a spec: the law and the value."""
    texts = (spec.name, spec.summary, spec.instructions, spec.example_action)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        yield (
            "name, summary, instructions and example_action of spec must be filled in.",
            repr(spec),
        )
    if not spec.splits or len(set(spec.splits)) != len(spec.splits):
        yield "spec.splits must name at least one split, each once.", repr(spec.splits)
    if len(set(spec.categories)) != len(spec.categories):
        yield "spec.categories must name each category once.", repr(spec.categories)
    if any(not _TAG.fullmatch(tag) or tag in _RESERVED_TAGS for tag in spec.action_tags):
        yield (
            "spec.action_tags must be lower-case names, and none of think, action and act.",
            repr(spec.action_tags),
        )
    if spec.max_rounds < 1:
        yield "spec.max_rounds must be at least 1.", repr(spec.max_rounds)
    low, high = spec.reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        yield "spec.reward_range must be two finite numbers, the lower first.", f"({low}, {high})"


def result_problems(result: StepResult) -> Iterator[str]:
    """Yield the laws that an answer breaks."""
    if not isinstance(result, StepResult):
        yield "step must return a StepResult."
        return
    flags = (result.terminated, result.truncated, result.success, result.valid_action)
    if not isinstance(result.observation, str):
        yield "StepResult.observation must be str."
    if not all(isinstance(flag, bool) for flag in flags):
        yield "The flags of StepResult must be bool: convert NumPy's with bool()."
    if isinstance(result.reward, bool) or not isinstance(result.reward, float | int):
        yield "StepResult.reward must be a float: convert NumPy's with float()."
    elif not math.isfinite(result.reward):
        yield "StepResult.reward must be finite."
    if result.success and not result.terminated:
        yield "success implies terminated: set both."
    yield from _report_problems(result)


def _report_problems(result: StepResult) -> Iterator[str]:
    """Yield the laws that an environment's own numbers break."""
    try:
        named_numbers(result.metrics, "metrics")
        parts = named_numbers(result.reward_parts, "reward_parts")
    except (TypeError, ValueError) as error:
        yield f"StepResult.metrics and reward_parts must be named, finite numbers: {error}."
        return
    if parts and isinstance(result.reward, float | int) and not parts_sum_to(parts, result.reward):
        yield "StepResult.reward_parts must sum to StepResult.reward: give the sum as the reward."
