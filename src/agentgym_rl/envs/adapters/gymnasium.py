"""Gymnasium's environments as ours: observations become text, words become actions.

    "gymnasium/FrozenLake-v1"                       with what the environment and we know of it
    Cart = gymnasium_class("CartPole-v1", actions=("left", "right"), reward_range=(0, 500),
                           success=lambda outcome: outcome.total_reward >= 475)   in your own module

Out of the box: text, discrete or few numbers as observations, text or discrete actions. Anything
else needs `describe` or `parse`. Rewards of Gymnasium have no bounds, so by default an episode
pays 1 for success and nothing else; with `reward_range` it pays what the environment pays, cut so
that the sum stays in the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from agentgym_rl.envs.adapters.outcome import Outcome, ended_well, reaches
from agentgym_rl.envs.adapters.seeded import SPLITS, Outline, SeededEnvironment, seed_of
from agentgym_rl.envs.adapters.spaces import is_printable, plain_picture, print_value
from agentgym_rl.envs.adapters.toy_text import Preset, find_preset
from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.errors import EnvError, did_you_mean
from agentgym_rl.frozen import MAX_NUMBERS, is_name
from agentgym_rl.types import StepResult, Task

# Observations, actions and options of Gymnasium are of any type, which is its own business.
GymEnv: TypeAlias = gymnasium.Env[Any, Any]
Options: TypeAlias = Mapping[str, Any]

_DEFAULT_ROUNDS = 50
_MAX_LISTED_ACTIONS = 30
_MAX_ECHO_CHARS = 60


@dataclass(frozen=True, slots=True)
class _Translation:
    """How an environment is put into words."""

    env_id: str
    describe: Callable[[GymEnv, object], str] | None
    actions: tuple[str, ...]
    """Names of a discrete space's actions by number; empty where there are none."""
    parse: Callable[[str, GymEnv], object | None] | None
    success: Callable[[Outcome], bool]
    pays_success_only: bool
    options: Options


def gymnasium_class(
    env_id: str,
    outline: Outline | None = None,
    *,
    describe: Callable[[GymEnv, object], str] | None = None,
    actions: Sequence[str] = (),
    parse: Callable[[str, GymEnv], object | None] | None = None,
    reward_range: tuple[float, float] | None = None,
    success: Callable[[Outcome], bool] | None = None,
    options: Options | None = None,
) -> type[SeededEnvironment]:
    """Return the environment behind an id of Gymnasium.

    `describe(env, observation)` puts an observation into words. `actions` names the actions of a
    discrete space by number, or `parse(text, env)` returns the action that a text means, None for
    one that means nothing. `success` is a rule over each step's outcome; an episode ends with it.
    By default it is the environment's threshold on the total reward, where it has one, else an
    end that pays. `options` go to `gymnasium.make`.

    Raises ValueError for an unknown id or where a hook is needed, EnvError for what cannot start.
    """
    given = outline or Outline()
    preset = find_preset(env_id)
    settings = dict(options or {})
    with closing(_make(env_id, settings)) as probe:
        names = tuple(actions) or _action_names(probe, preset)
        _check_spaces(env_id, probe, names, has_describe=describe is not None, parse=parse)
        max_steps = probe.spec.max_episode_steps if probe.spec else None
        rule, rule_in_words = _default_success(probe, preset)
    default_goal = preset.goal if preset else f"bring {env_id} to an end that pays."
    translation = _Translation(
        env_id=env_id,
        describe=describe or (preset.describe if preset else None),
        actions=names,
        parse=parse,
        success=success or rule,
        pays_success_only=reward_range is None,
        options=settings,
    )

    class Adapted(GymnasiumEnvironment):
        spec: ClassVar[EnvSpec] = EnvSpec(
            name=given.name or f"gymnasium/{env_id}",
            summary=f"Gymnasium's {env_id} in words.",
            instructions=given.instructions or _instructions(env_id, preset, names),
            example_action=given.example_action or (names[0] if names else "look"),
            splits=SPLITS,
            categories=(env_id,),
            max_rounds=given.max_rounds or max_steps or _DEFAULT_ROUNDS,
            reward_range=reward_range or (0.0, 1.0),
            success="the rule given for it holds" if success else rule_in_words,
        )
        outline: ClassVar[Outline] = given
        shares_thread: ClassVar[bool] = given.shares_thread
        _translation: ClassVar[_Translation] = translation
        _goal: ClassVar[str] = given.goal or default_goal

    return Adapted


class GymnasiumEnvironment(SeededEnvironment):
    """One episode. A text that means no action changes nothing and costs a round."""

    _translation: ClassVar[_Translation]
    _goal: ClassVar[str]

    def __init__(self, **options: object) -> None:
        """Take options of `gymnasium.make`, which only the environment can list."""
        given = self._translation
        self._env = _make(given.env_id, {**given.options, **options})
        self._info: Mapping[str, object] = {}
        self._total = 0.0
        self._paid = 0.0
        self._is_closed = False

    def reset(self, task: Task) -> str:
        self._check_task(task)
        observation, self._info = self._env.reset(seed=seed_of(task))
        self._total = self._paid = 0.0
        return f"Goal: {self._goal}\n\n{self._describe(observation)}"

    def step(self, action: str) -> StepResult:
        value = self._parse(action)
        if value is None:
            return StepResult(self._refusal(action), valid_action=False)
        observation, reward, terminated, truncated, self._info = self._env.step(value)
        self._total += float(reward)
        outcome = Outcome(float(reward), self._total, bool(terminated), bool(truncated), self._info)
        is_success = bool(self._translation.success(outcome))
        return StepResult(
            self._describe(observation),
            reward=self._pay(is_success=is_success),
            terminated=outcome.terminated or is_success,
            truncated=outcome.truncated and not (outcome.terminated or is_success),
            success=is_success,
            metrics=_numbers_of(self._info),
        )

    def available_actions(self) -> tuple[str, ...]:
        """Return the names of the actions, without those that the environment masks."""
        names = self._translation.actions
        mask = self._info.get("action_mask")
        if mask is None or len(np.asarray(mask)) != len(names):
            return names
        return tuple(n for n, is_open in zip(names, np.asarray(mask), strict=True) if is_open)

    def details(self) -> Mapping[str, JsonValue]:
        return {"env": self._translation.env_id, "total_reward": self._total}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._env.close()

    def _describe(self, observation: object) -> str:
        if self._translation.describe is not None:
            return self._translation.describe(self._env, observation)
        if self._env.render_mode == "ansi" and not isinstance(observation, str):
            return plain_picture(str(self._env.render()))
        return print_value(observation)

    def _parse(self, text: str) -> object | None:
        if self._translation.parse is not None:
            return self._translation.parse(text, self._env)
        space = self._env.action_space
        if isinstance(space, spaces.Text):
            return text if space.contains(text) else None
        assert isinstance(space, spaces.Discrete)
        word = text.strip().rstrip(".").strip().casefold()
        for number, name in enumerate(self._translation.actions):
            if word in (name.casefold(), str(space.start + number)):
                return space.start + number
        return None

    def _refusal(self, action: str) -> str:
        head = "".join(char if char.isprintable() else "?" for char in action[:_MAX_ECHO_CHARS])
        dots = "..." if len(action) > _MAX_ECHO_CHARS else ""
        known = _listed(self._translation.actions)
        return f'"{head}{dots}" is not an action.' + (f" Actions: {known}." if known else "")

    def _pay(self, *, is_success: bool) -> float:
        """Return what this step pays, so that the sum of all stays in the range."""
        if self._translation.pays_success_only:
            return float(is_success)
        low, high = self.spec.reward_range
        if not math.isfinite(self._total):
            raise EnvError(f"{self.spec.name} gave a reward that is not a finite number")
        before, self._paid = self._paid, min(max(self._total, low), high)
        return self._paid - before


def _make(env_id: str, options: Options) -> GymEnv:
    """Return a new environment that draws itself in characters, if it can."""
    try:
        spec = gymnasium.spec(env_id)
        made = gymnasium.make(spec, disable_env_checker=True, **options)
        modes = made.metadata.get("render_modes", ())
        if "render_mode" not in options and "ansi" in modes:
            made.close()
            made = gymnasium.make(spec, disable_env_checker=True, render_mode="ansi", **options)
        return made
    except gymnasium.error.DependencyNotInstalled as error:
        raise EnvError(f"Gymnasium's {env_id} needs another package: {error}") from error
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        guess = did_you_mean(env_id, gymnasium.registry)
        raise ValueError(f"Gymnasium has no environment {env_id!r}{guess}: {error}") from error
    except ImportError as error:
        raise EnvError(f"Gymnasium's {env_id} cannot be imported: {error}") from error
    except Exception as error:  # each environment has its own way to refuse an option
        raise ValueError(
            f"Gymnasium's {env_id} cannot be made with the options {dict(options)}: {error!r}"
        ) from error


def _check_spaces(
    env_id: str,
    env: GymEnv,
    names: tuple[str, ...],
    *,
    has_describe: bool,
    parse: Callable[[str, GymEnv], object | None] | None,
) -> None:
    """Raise ValueError, naming the hook, where an environment cannot be put into words."""
    observations, actions = env.observation_space, env.action_space
    if not has_describe and env.render_mode != "ansi" and not is_printable(observations):
        raise ValueError(
            f"the observations of {env_id} are {observations}, which is not text: give "
            "gymnasium_class(..., describe=...), a function (env, observation) -> str"
        )
    if parse is not None or isinstance(actions, spaces.Text):
        return
    if not isinstance(actions, spaces.Discrete):
        raise ValueError(
            f"the actions of {env_id} are {actions}, neither text nor discrete: give "
            "gymnasium_class(..., parse=...), a function (text, env) -> action"
        )
    if len(names) != actions.n:
        raise ValueError(f"{env_id} has {actions.n} actions, but {len(names)} names were given")


def _action_names(env: GymEnv, preset: Preset | None) -> tuple[str, ...]:
    """Return names for discrete actions: those we know, those it publishes, or numbers."""
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        return ()
    if preset is not None and len(preset.actions) == space.n:
        return preset.actions
    inner = env.unwrapped
    # Two customs: a method of the Atari games, an enumeration of minigrid.
    if callable(meanings := getattr(inner, "get_action_meanings", None)):
        return tuple(str(name).lower() for name in meanings())
    members = tuple(getattr(getattr(inner, "actions", None), "__members__", ()))
    if len(members) == space.n:
        return tuple(str(member).lower() for member in members)
    return tuple(str(number) for number in range(space.start, space.start + space.n))


def _default_success(env: GymEnv, preset: Preset | None) -> tuple[Callable[[Outcome], bool], str]:
    """Return what counts as success where the user does not say, and the same in words."""
    if preset is not None:
        return preset.success, f"the goal is reached: {preset.goal}"
    threshold = env.spec.reward_threshold if env.spec else None
    if threshold is not None:
        return reaches(threshold), f"the episode ends with a total reward of {threshold:g} or more"
    return ended_well, "the environment reports success, or ends with a reward above 0"


def _instructions(env_id: str, preset: Preset | None, names: tuple[str, ...]) -> str:
    rules = preset.rules if preset else f"You act in Gymnasium's environment {env_id}."
    known = f" Your action is one of: {_listed(names)}." if names else ""
    return f"{rules} Every round you do one action and see what comes of it.{known}"


def _listed(names: tuple[str, ...]) -> str:
    rest = ", ..." if len(names) > _MAX_LISTED_ACTIONS else ""
    return ", ".join(names[:_MAX_LISTED_ACTIONS]) + rest


def _numbers_of(info: Mapping[str, object]) -> dict[str, float]:
    """Return the plain numbers of a step's info, as far as metrics hold them."""
    numbers = {
        name: float(value)
        for name, value in info.items()
        if is_name(name)
        and isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
        and math.isfinite(value)
    }
    return dict(list(numbers.items())[:MAX_NUMBERS])
