"""Objects that a program hands over instead of names in a recipe.

A run records what it used: `config.toml` has "module:Class" for what can be imported, and a marker
for the rest, "<object>:__main__.MyEnv". A run with a marker resumes only when the object is handed
over again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from agentgym_rl.agents.agent import Agent, check_agent_class, make_agent
from agentgym_rl.config import AgentConfig, EnvConfig, OnlineConfig, RunConfig
from agentgym_rl.envs.access.server_process import StartServer, start_here
from agentgym_rl.envs.access.sources import make_source
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError
from agentgym_rl.lookup import OBJECT_MARKER, importable_name
from agentgym_rl.rewards import RewardFunction, check_arguments
from agentgym_rl.rollout.rewards import EpisodeRewards

if TYPE_CHECKING:
    from agentgym_rl.models.loading import Policy
    from agentgym_rl.training.algorithms.base import Algorithm

AgentLike: TypeAlias = type[Agent] | Agent
AlgorithmLike: TypeAlias = "type[Algorithm] | Algorithm"

_NAMES: tuple[tuple[str, str, Callable[[RunConfig], str]], ...] = (
    ("model", "model.path", lambda config: config.model.path),
    ("agent", "agent.type", lambda config: config.agent.type),
    ("algorithm", "algorithm.type", lambda config: config.algorithm.type),
    ("reward", "reward.function", lambda config: config.reward.function),
)
"""Argument of `train`, setting that says what was given, and how it is read; environments are
apart."""
_ARGUMENTS = ("env", *(argument for argument, _, _ in _NAMES))


@dataclass(frozen=True, slots=True)
class Objects:
    """What a program handed over; None leaves it to the recipe."""

    env: type[Environment] | None = None
    model: Policy | None = None
    agent: AgentLike | None = None
    algorithm: AlgorithmLike | None = None
    reward: RewardFunction | None = None
    envs: Mapping[str, str | type[Environment]] = field(default_factory=dict)
    """Several environments by label, in the place of those of the recipe: names and classes."""

    def __post_init__(self) -> None:
        for env in (self.env, *self.envs.values()):
            if not isinstance(env, str):
                _check_env(env)
        if self.agent is not None and not isinstance(self.agent, Agent):
            check_agent_class(self.agent, given=f"agent={self.agent!r}")
        _check_algorithm(self.algorithm)
        if self.reward is not None and not callable(self.reward):
            raise ValueError(
                f"reward={self.reward!r} is not a function; give one that takes an Episode and "
                'returns a number, or its name, "module:function"'
            )
        if self.reward is not None:
            check_arguments(self.reward, given=f"reward={self.reward!r}")

    def settings(self) -> dict[str, object]:
        """Return the settings that stand for these objects, by dotted key."""
        found: dict[str, object] = {}
        if self.env is not None:
            found["env.name"] = name_of(self.env)
        for label, env in self.envs.items():
            found[f"envs.{label}.name"] = env if isinstance(env, str) else name_of(env)
        if self.model is not None:
            found |= {
                "model.path": _marker(self.model.model),
                "model.dtype": str(self.model.model.dtype).removeprefix("torch."),
                "model.device": self.model.model.device.type,
            }
        if isinstance(self.agent, Agent):
            found["agent"] = self.agent.config.model_dump(mode="json")
        if self.agent is not None:
            found["agent.type"] = name_of(self.agent)
        if self.algorithm is not None:
            found["algorithm.type"] = name_of(self.algorithm)
            config = getattr(self.algorithm, "config", None)  # of an object; a class has none
            if isinstance(config, OnlineConfig):
                values = config.model_dump(mode="json", exclude={"type"})
                found |= {f"algorithm.{key}": value for key, value in values.items()}
        if self.reward is not None:
            found["reward.function"] = name_of(self.reward)
        return found

    def classes(self) -> dict[str, type]:
        """Return the classes whose settings a recipe holds, by the name that it has for each."""
        if self.algorithm is None:
            return {}
        found = self.algorithm
        return {name_of(found): found if isinstance(found, type) else type(found)}

    def refuse_missing(
        self, config: RunConfig, *, source: str, needed: Container[str] = _ARGUMENTS
    ) -> None:
        """Raise ConfigError where the settings name an object that was not handed over."""
        missing = list(self._missing_envs(config)) if "env" in needed else []
        missing += [
            (argument, f"{key}={read(config)}")
            for argument, key, read in _NAMES
            if argument in needed
            and read(config).startswith(OBJECT_MARKER)
            and getattr(self, argument) is None  # a field of ours
        ]
        if missing:
            arguments = ", ".join(dict.fromkeys(f"{argument}=..." for argument, _ in missing))
            raise ConfigError(
                f"{source} was made in Python, from objects without an importable name: "
                f"{', '.join(setting for _, setting in missing)}; pass them again: "
                f"agentgym_rl.train(..., {arguments})"
            )

    def _missing_envs(self, config: RunConfig) -> Iterator[tuple[str, str]]:
        for label, of_env in config.environments.items():
            name, given = of_env.env.name, self.of_env(label).env
            if name.startswith(OBJECT_MARKER) and given is None:
                several = bool(config.envs)
                key = f"envs.{label}.name" if several else "env.name"
                yield "envs" if several else "env", f"{key}={name}"

    def of_env(self, label: str) -> Objects:
        """Return what stands for the names of one environment's settings."""
        if not self.envs:
            return self
        env = self.envs.get(label, label)
        return replace(self, env=None if isinstance(env, str) else env, envs={})

    def source(
        self, config: EnvConfig, *, num_servers: int = 0, start: StartServer = start_here
    ) -> EnvSource:
        """Return where the environments come from; `num_servers` as in `cluster.env_servers`, which
        `start` starts."""
        if self.env is None:
            return make_source(config, num_servers=num_servers, start=start)
        if config.urls:
            raise ConfigError(
                f"env={self.env.__name__} is played in this process, but env.url={config.urls[0]} "
                "names a server: give one of the two"
            )
        if not config.workers and not num_servers:
            return LocalEnvSource(self.env, options=config.options, timeout_s=config.timeout_s)
        if config.name.startswith(OBJECT_MARKER):
            setting = "cluster.env_servers" if num_servers else "env.workers"
            raise ConfigError(
                f"{setting}={num_servers or config.workers} are processes that import the "
                f"environment, and {self.env.__name__} cannot be imported: define it in a module, "
                f"or set {setting}=0"
            )
        return make_source(config, num_servers=num_servers, start=start)

    def make_agent(self, config: AgentConfig, spec: EnvSpec) -> Agent:
        if not isinstance(self.agent, Agent):
            return make_agent(config, spec, self.agent)
        if self.agent.spec.name != spec.name:
            raise ValueError(
                f"agent={self.agent.name} was made for {self.agent.spec.name!r}, but the "
                f"environment is {spec.name!r}; make one with its spec, or pass the class"
            )
        return self.agent

    def rewards(self, config: RunConfig) -> EpisodeRewards:
        return EpisodeRewards.of(config, self.reward)


def name_of(thing: object) -> str:
    """Return "module:Class" of what can be imported, of anything else a marker."""
    return importable_name(thing) or _marker(thing)


def _marker(thing: object) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    name = getattr(named, "__qualname__", "object")  # the user's own
    return f"{OBJECT_MARKER}{named.__module__}.{name}"


def _check_env(env: object) -> None:
    if env is None:
        return
    if isinstance(env, Environment):
        name = type(env).__name__
        raise ValueError(
            f"env={name}(...) is one episode; pass the class, env={name}, and its arguments as "
            'overrides={"env.options": {...}}'
        )
    if not (isinstance(env, type) and issubclass(env, Environment)):
        raise ValueError(
            f"env={env!r} is not an environment; pass a name, or a subclass of "
            "agentgym_rl.Environment"
        )
    if not hasattr(env, "spec"):
        raise ValueError(f"env={env.__name__} has no `spec`; give the class an EnvSpec")


def _check_algorithm(algorithm: object) -> None:
    if algorithm is None:
        return
    from agentgym_rl.training.algorithms.base import Algorithm  # start-up time: torch

    cls = algorithm if isinstance(algorithm, type) else type(algorithm)
    if not issubclass(cls, Algorithm):
        raise ValueError(
            f"algorithm={algorithm!r} is not an algorithm; pass a name, or a subclass of "
            "agentgym_rl.Algorithm or agentgym_rl.GRPO, or an object of one"
        )
