"""One environment object with its guard: what may be called when, and what it may answer.

Clients in process (envs/execution/local.py) and servers (envs/service/server/session_store.py)
both play through this class, so an episode is the same on either side. Synchronous; used by one
thread at a time. Deadlines and threads belong to the holder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from agentgym_rl.envs.base import Environment, JsonValue
from agentgym_rl.frozen import named_numbers, parts_sum_to
from agentgym_rl.types import StepResult, Task


class EpisodeStateError(RuntimeError):
    """A call that the present state of the episode does not allow; a bug of the caller."""


class EnvEpisode:
    """A place for one episode at a time; the environment object is made by `build`.

    What the environment raises passes through. An answer that breaks the contract's types, or
    that JSON cannot carry, raises TypeError or ValueError.
    """

    __slots__ = ("_environment", "_factory", "_is_over", "_observation", "num_rounds", "task")

    def __init__(self, factory: Callable[[], Environment]) -> None:
        self._factory = factory
        self._environment: Environment | None = None
        self._observation = ""
        self._is_over = False
        self.task: Task | None = None
        """The task of the present episode; None before the first reset."""
        self.num_rounds = 0
        """Steps since the reset; also the number of the next round."""

    def build(self) -> None:
        """Make the environment object, unless it is there."""
        if self._environment is None:
            self._environment = self._factory()

    def reset(self, task: Task) -> str:
        """Start the task; a ValueError says that there is no such task, and no episode runs."""
        self.task, self.num_rounds, self._is_over = task, 0, False
        try:
            text = self._held().reset(task)
        except ValueError:
            self.task = None
            raise
        self._observation = _checked_text(text, "the observation of reset")
        return self._observation

    def step(self, action: str) -> StepResult:
        environment = self._environment
        if self._is_over:
            raise EpisodeStateError("step after the end of the episode: reset first")
        if self.task is None or environment is None:
            environment = self._started("step")
        result = _checked_result(environment.step(action))
        self.num_rounds += 1
        self._observation = result.observation
        self._is_over = result.is_last
        return result

    def observation(self) -> str:
        self._started("observation")
        return self._observation

    def available_actions(self) -> tuple[str, ...]:
        environment = self._started("available_actions")
        if self._is_over:
            return ()
        actions = environment.available_actions()
        return tuple(_checked_text(action, "an available action") for action in actions)

    def details(self) -> Mapping[str, JsonValue]:
        return dict(self._started("details").details())

    def render(self) -> bytes | None:
        return self._started("render").render()

    def close(self) -> None:
        """Close the environment object, if there is one. Safe to repeat."""
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()

    def _held(self) -> Environment:
        assert self._environment is not None, "build comes first"
        return self._environment

    def _started(self, what: str) -> Environment:
        if self.task is None:
            raise EpisodeStateError(f"{what} before reset")
        return self._held()


def where(env: str, task: Task | None, num_rounds: int) -> str:
    """Return where an episode stands, for messages: "env babyai, task babyai/44, round 3"."""
    if task is None:
        return f"env {env}"
    return f"env {env}, task {task.id}, round {num_rounds}"


def without_surrogates(text: str) -> str:
    """Return `text` with lone surrogates (which UTF-8 cannot carry) replaced by "?"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _checked_text(value: object, what: str) -> str:
    """Return `value` as plain text that UTF-8 can carry, or raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    return value if value.isascii() else without_surrogates(value)


def _checked_result(result: object) -> StepResult:
    """Return `result` in plain types, or raise: what JSON cannot carry must fail here as well."""
    if not isinstance(result, StepResult):
        raise TypeError(f"step must return StepResult, not {type(result).__name__}")
    flags = (result.terminated, result.truncated, result.success, result.valid_action)
    if not (type(flags[0]) is type(flags[1]) is type(flags[2]) is type(flags[3]) is bool):
        kinds = ", ".join(f"{type(flag).__module__}.{type(flag).__name__}" for flag in flags)
        raise TypeError(
            "terminated, truncated, success and valid_action of StepResult must be bool, "
            f"not {kinds}"
        )
    if isinstance(result.reward, str):  # which float() would read
        raise TypeError("StepResult.reward must be a number, not str")
    observation = _checked_text(result.observation, "StepResult.observation")
    reward = float(result.reward)
    if not math.isfinite(reward):
        raise ValueError(f"StepResult.reward must be finite, not {reward}")
    is_plain = observation is result.observation and type(result.reward) is float
    if is_plain and not result.metrics and not result.reward_parts:
        return result
    return StepResult(
        observation=observation,
        reward=reward,
        terminated=result.terminated,
        truncated=result.truncated,
        success=result.success,
        valid_action=result.valid_action,
        metrics=named_numbers(result.metrics, "StepResult.metrics"),
        reward_parts=checked_parts(result.reward_parts, reward),
    )


def checked_parts(parts: Mapping[str, float], reward: float) -> Mapping[str, float]:
    """Return the parts of a round's reward, or raise TypeError or ValueError."""
    checked = named_numbers(parts, "StepResult.reward_parts")
    if checked and not parts_sum_to(checked, reward):
        raise ValueError(
            f"StepResult.reward_parts must sum to the reward {reward:g}, not to "
            f"{math.fsum(checked.values()):g}: {dict(checked)}"
        )
    return checked
