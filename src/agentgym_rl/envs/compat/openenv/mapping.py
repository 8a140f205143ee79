"""How the objects of an OpenEnv server become text and `StepResult`s, and actions its objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from agentgym_rl.envs.compat.openenv.protocol import TEXT_FIELD
from agentgym_rl.envs.service.protocol import Object, wrong_type
from agentgym_rl.frozen import named_numbers, parts_sum_to
from agentgym_rl.types import StepResult

_TEXT_FIELDS = (TEXT_FIELD, "observation", "prompt", "message", "content", "output")
"""Fields that hold the text of an observation, best first."""


@dataclass(frozen=True, slots=True)
class OpenEnvOptions:
    """What a server that is not ours leaves open. Our own servers say it all themselves."""

    observation_field: str | None = None
    """The field of an observation that the agent sees. By default the first string among `text`,
    `observation`, `prompt`, `message`, `content` and `output`; else the object as JSON."""
    action_field: str | None = None
    """The field of an action that takes the agent's text. By default the one that the server's
    schema asks for, where that is a string; else the agent writes the whole object as JSON."""
    success_reward: float = 1.0
    """An episode whose last reward is at least this much is a success."""
    has_total_rewards: bool = False
    """Whether a reward is the sum so far, so that a round earned the difference."""
    instructions: str | None = None
    """What the agent is told; by default the description of the server."""
    max_rounds: int = 30
    num_train: int = 1000
    """Tasks of the split train where the server has none: the seeds after those of test."""
    num_test: int = 100
    """Tasks of the split test where the server has none: the seeds from 0 on."""


class BadActionError(ValueError):
    """The agent's text is not an action of this server; the message says why."""


@dataclass(frozen=True, slots=True)
class ActionForm:
    """How the agent's text becomes an action object."""

    field: str | None
    """The field that takes the text; None where the text itself is the object, as JSON."""
    example: str
    """One text of the right form."""
    schema: str
    """The server's schema, compact, for the instructions."""

    @classmethod
    def from_schema(cls, schema: Object, field: str | None = None) -> ActionForm:
        """Return the form of a JSON schema; `field` overrides what the schema suggests."""
        properties = {
            name: value
            for name, value in schema.get("properties", {}).items()
            if name != "metadata" and isinstance(value, dict)
        }
        required = [name for name in schema.get("required", []) if name in properties]
        candidates = required or list(properties)
        if field is None and len(candidates) == 1 and _is_text(properties[candidates[0]]):
            field = candidates[0]
        if field is not None:
            example = str(_example(properties.get(field, {})))
        else:
            example = compact({name: _example(properties[name]) for name in candidates})
        return cls(field, example, compact(schema))

    @property
    def note(self) -> str:
        """What the agent must be told of the form of its actions; empty where any text will do."""
        if self.field is not None:
            return ""
        return f"An action is a JSON object with this schema: {self.schema}"

    def encode(self, action: str) -> Object:
        """Return the action object of a text. Raises BadActionError where it is none."""
        if self.field is not None:
            return {self.field: action}
        try:
            value = orjson.loads(action)
        except orjson.JSONDecodeError as error:
            raise BadActionError(f"The action must be a JSON object: {error}") from None
        if not isinstance(value, dict):
            raise BadActionError("The action must be a JSON object.")
        return value


def observation_text(outcome: Object, field: str | None) -> str:
    """Return what the agent sees of the observation in an outcome."""
    observation = outcome.get("observation")
    if isinstance(observation, str):
        return observation
    if not isinstance(observation, dict):
        raise wrong_type("'observation' must be an object")
    if field is not None:
        if field not in observation:
            known = ", ".join(observation)
            raise wrong_type(f"the observation has no field {field!r}; it has {known}")
        value = observation[field]
        return value if isinstance(value, str) else compact(value)
    shown = {name: value for name, value in observation.items() if name != "metadata"}
    for name in _TEXT_FIELDS if len(shown) > 1 else shown:
        value = shown.get(name)
        if isinstance(value, str):
            return value
    return compact(shown)


def step_result(outcome: Object, options: OpenEnvOptions, *, reward_before: float) -> StepResult:
    """Return the result of a round; `reward_before` is what `total_reward` gave for the last one.

    Flags in the metadata win, so that a server of ours is understood exactly.
    """
    metadata = _metadata(outcome)
    reward = total_reward(outcome)
    is_done = is_over(outcome)
    truncated = metadata.get("truncated") is True and is_done
    terminated = _flag(metadata, "terminated", is_done and not truncated)
    success = _flag(metadata, "success", reward >= options.success_reward)
    earned = reward - reward_before if options.has_total_rewards else reward
    parts = _numbers(metadata, "reward_parts")
    return StepResult(
        observation=observation_text(outcome, options.observation_field),
        reward=earned,
        terminated=terminated,
        truncated=truncated,
        success=success and terminated,
        valid_action=_flag(metadata, "valid_action", True),
        metrics=_numbers(metadata, "metrics"),
        reward_parts=parts if parts_sum_to(parts, earned) else {},
    )


def total_reward(outcome: Object) -> float:
    """Return the reward of an outcome as the server gave it; none is 0."""
    reward = outcome.get("reward")
    if reward is None:
        return 0.0
    if not isinstance(reward, bool | int | float) or not math.isfinite(reward):
        raise wrong_type(f"'reward' must be a number, not {str(reward)[:50]!r}")
    return float(reward)


def is_over(outcome: Object) -> bool:
    done = outcome.get("done", False)
    if not isinstance(done, bool):
        raise wrong_type(f"'done' must be bool, not {str(done)[:50]!r}")
    return done


def compact(value: object) -> str:
    return orjson.dumps(value).decode()


def _metadata(outcome: Object) -> Mapping[str, object]:
    """Return the metadata, which is beside the observation or (before 0.10) only inside it."""
    observation = outcome.get("observation")
    inside = observation.get("metadata") if isinstance(observation, dict) else None
    for metadata in (outcome.get("metadata"), inside):
        if isinstance(metadata, dict):
            return metadata
    return {}


def _flag(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    value = metadata.get(name)
    return value if isinstance(value, bool) else default


def _numbers(metadata: Mapping[str, object], name: str) -> Mapping[str, float]:
    """Return named numbers of the metadata; none where a server means something else by it."""
    values = metadata.get(name)
    if not isinstance(values, dict):
        return {}
    try:
        return named_numbers(values, name)
    except (TypeError, ValueError):
        return {}


def _is_text(schema: Object) -> bool:
    kinds = [schema, *schema.get("anyOf", [])]
    return "const" not in schema and any(kind.get("type") == "string" for kind in kinds)


def _example(schema: Object) -> object:
    """Return a value of a property, from what its schema offers or after its type."""
    for name in ("const", "default"):
        if schema.get(name):
            return schema[name]
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    return _BY_TYPE.get(schema.get("type", ""), "...")


_BY_TYPE: Mapping[str, object] = {
    "integer": 0,
    "number": 0.0,
    "boolean": False,
    "array": (),
    "object": {},
}
