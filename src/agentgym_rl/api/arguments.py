"""What callers pass to `train`, `evaluate` and `rollout`: names, or objects in their place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from agentgym_rl.envs.base import Environment
from agentgym_rl.objects import AgentLike, AlgorithmLike, Objects
from agentgym_rl.rewards import RewardFunction

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from agentgym_rl.models.loading import Policy

EnvArgument: TypeAlias = str | type[Environment] | None
"""A name as in `env.name`, or a class."""
EnvsArgument: TypeAlias = Mapping[str, str | type[Environment] | Mapping[str, object]]
"""Several environments by label: a name, a class, or a table as `[envs.LABEL]`, whose `name` may
also be a class."""
ModelArgument: TypeAlias = "str | os.PathLike[str] | PreTrainedModel"
"""A name as in `model.path`, a path, `run.model`, or a loaded model of transformers."""
TokenizerArgument: TypeAlias = "PreTrainedTokenizerBase | None"
"""Of a loaded model; None elsewhere."""
AgentArgument: TypeAlias = str | AgentLike | None
AlgorithmArgument: TypeAlias = "str | AlgorithmLike | None"
RewardArgument: TypeAlias = str | RewardFunction | None


def names_and_objects(
    *,
    env: EnvArgument = None,
    envs: EnvsArgument | None = None,
    policy: Policy | None = None,
    agent: AgentArgument = None,
    algorithm: AlgorithmArgument = None,
    reward: RewardArgument = None,
) -> tuple[dict[str, object], Objects]:
    """Return the settings that names stand for, and the objects."""
    given: dict[str, object] = {
        "env.name": env,
        "agent.type": agent,
        "algorithm.type": algorithm,
        "reward.function": reward,
    }
    names: dict[str, object] = {key: name for key, name in given.items() if isinstance(name, str)}
    if envs is not None:
        if env is not None:
            raise ValueError("env=... is for one environment and envs={...} for several: give one")
        names |= _settings(envs)
    return names, Objects(
        env=None if isinstance(env, str) else env,
        model=policy,
        agent=None if isinstance(agent, str) else agent,
        algorithm=None if isinstance(algorithm, str) else algorithm,
        reward=None if isinstance(reward, str) else reward,
        envs={} if envs is None else {label: _env_of(label, envs[label]) for label in envs},
    )


def _settings(envs: EnvsArgument) -> dict[str, object]:
    """Return what is set of several environments beside their names, by dotted key."""
    if not isinstance(envs, Mapping) or not envs:
        raise ValueError(
            f'envs={envs!r} is not a table of environments: write {{"babyai": "babyai"}}, a name '
            "or a class for each label"
        )
    return {
        f"envs.{label}.{key}": value
        for label, given in envs.items()
        for key, value in (given.items() if isinstance(given, Mapping) else ())
        if key != "name"
    }


def _env_of(label: str, given: str | type[Environment] | Mapping[str, object]) -> Any:
    """Return the name or the class of an environment; `Objects` refuses anything else."""
    return given.get("name", label) if isinstance(given, Mapping) else given


def path_of(model: ModelArgument) -> str | None:
    """Return the path or name of a model; None for one that is loaded."""
    try:
        return os.fspath(model)  # pyrefly: ignore[no-matching-overload] - a loaded one has none
    except TypeError:
        return None


def loaded(model: ModelArgument, tokenizer: TokenizerArgument) -> Policy | None:
    """Return a loaded model of the caller's, ready to play; None for a name or a path."""
    path = path_of(model)
    if path is None:
        from agentgym_rl.models.loading import policy_of  # start-up time: torch

        return policy_of(model, tokenizer)
    if tokenizer is not None:
        raise ValueError(
            f"tokenizer={type(tokenizer).__name__}(...) goes with a loaded model, and "
            f"model={path!r} brings its own: leave the tokenizer out"
        )
    return None
