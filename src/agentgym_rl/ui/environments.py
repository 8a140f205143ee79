"""Environments that the UI may open: the registered ones, ids of adapters, and those it was given.

Requests name environments, and a name like "module:Class" would import whatever it says, so only
classes are taken that whoever started the UI named. What run folders name is opened by the
narrower rules of replay_rules.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.client import EnvClient
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import AgentGymError
from agentgym_rl.runs.pictures import data_address
from agentgym_rl.types import Task
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.replay_rules import name_problem, replayable_class

CALL_TIMEOUT_S = 60.0
MAX_PICTURE_BYTES = 4_000_000


class Environments:
    """Opens environments by name."""

    def __init__(self, extra: Collection[str] = ()) -> None:
        """`extra` are names of the form "module:Class" that are allowed."""
        self._extra = tuple(extra)

    async def describe(self) -> list[dict[str, object]]:
        """Return every environment by name, with what keeps it from running here."""
        return [await asyncio.to_thread(_description, name) for name in self._listed]

    def source(self, name: str) -> LocalEnvSource:
        """Return where episodes to play come from; imports the environment, so on a thread."""
        self.check(name)
        return _source(name, {})

    def replay_source(self, name: str, options: Mapping[str, object]) -> LocalEnvSource:
        """Return what plays stored episodes again, under the options of their run; on a thread."""
        name = self._allowed_name(name)
        replayable_class(name, options, self._extra)
        return _source(name, options)

    def replay_problem(self, name: str) -> str | None:
        """Return why the state of an environment's episodes is not shown.

        Imports nothing but what whoever started the UI named.
        """
        return name_problem(self._allowed_name(name), self._extra)

    def _allowed_name(self, name: str) -> str:
        """Return the "module:Class" that is allowed and whose episodes bear this name."""
        if name in registry.BUILTIN:
            return name
        for given in self._extra:
            with suppress(AgentGymError, ValueError):  # it cannot run here
                if env_class(given).spec.name == name:
                    return given
        return name

    def tasks(self, name: str, split: str) -> Sequence[Task]:
        """Return the tasks of a listed environment."""
        if name not in self._listed:
            raise ApiError(409, f"environment {name!r} is not in the list of the UI")
        with _refusing():
            return tasks_of(name, split)

    def check(self, name: str) -> None:
        """Refuse a name that would import something nobody allowed."""
        family, slash, env_id = name.partition("/")
        is_of_family = bool(slash) and family in registry.FAMILIES and ":" not in env_id
        if not (name in registry.names() or name in self._extra or is_of_family):
            raise ApiError(
                409,
                f"environment {name!r} is not registered here, so it is not opened; start the UI "
                "with --env module:Class to allow it",
            )

    @property
    def _listed(self) -> tuple[str, ...]:
        return (*registry.names(), *self._extra)


@cache
def env_class(name: str) -> type[Environment]:
    return registry.env_class(name)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn what keeps an environment from running into a refusal."""
    try:
        yield
    except (AgentGymError, ValueError) as error:
        raise ApiError(409, str(error)) from error


def _source(name: str, options: Mapping[str, object]) -> LocalEnvSource:
    with _refusing():
        return LocalEnvSource(name, options=options, timeout_s=CALL_TIMEOUT_S)


@cache
def tasks_of(name: str, split: str) -> Sequence[Task]:
    """Return the tasks of a split, read once."""
    cls = env_class(name)
    if split not in cls.spec.splits:
        raise ApiError(404, f"{name} has no split {split!r}; it has {', '.join(cls.spec.splits)}")
    return cls.tasks(split)


async def state_of(client: EnvClient) -> dict[str, object]:
    """Return the visible state of an episode."""
    picture = await client.render()
    if picture is not None and len(picture) > MAX_PICTURE_BYTES:
        picture = None
    return {
        "observation": await client.observation(),
        "details": dict(await client.details()),
        "picture": None if picture is None else data_address(picture),
    }


def _description(name: str) -> dict[str, object]:
    try:
        spec = env_class(name).spec
    except (AgentGymError, ValueError) as error:
        return {"name": name, "splits": [], "description": "", "problem": str(error)}
    return {
        "name": name,
        "splits": list(spec.splits),
        "description": spec.summary,
        "categories": list(spec.categories),
        "max_rounds": spec.max_rounds,
        "success": spec.success,
        "problem": None,
    }
