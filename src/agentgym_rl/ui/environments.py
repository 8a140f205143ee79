"""Environments that the UI may open: the registered ones, ids of adapters, and those it was given.

Run folders and requests name environments, and a name like "module:Class" would import whatever it
says, so only such classes are taken that whoever started the UI named.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.client.base import EnvClient
from agentgym_rl.envs.client.local import LocalEnvSource
from agentgym_rl.errors import AgentGymError
from agentgym_rl.types import Task
from agentgym_rl.ui.answers import ApiError

CALL_TIMEOUT_S = 60.0
MAX_PICTURE_BYTES = 4_000_000


class Environments:
    """Opens environments by name."""

    def __init__(self, extra: Collection[str] = ()) -> None:
        """`extra` are names of the form "module:Class" that are allowed."""
        self._extra = tuple(extra)

    async def describe(self) -> list[dict[str, object]]:
        """Return every environment by name, with what keeps it from running here."""
        names = [*registry.names(), *self._extra]
        return [await asyncio.to_thread(_description, name) for name in names]

    def source(self, name: str, options: Mapping[str, object] | None = None) -> LocalEnvSource:
        """Return where episodes of an environment come from; imports it, so on a thread."""
        self.check(name)
        try:
            return LocalEnvSource(name, options=options or {}, timeout_s=CALL_TIMEOUT_S)
        except (AgentGymError, ValueError) as error:
            raise ApiError(409, str(error)) from error

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

    def has_pictures(self, name: str) -> bool:
        """Return whether an environment draws its states; False where it cannot be opened."""
        try:
            self.check(name)
            return env_class(name).render is not Environment.render
        except (ApiError, AgentGymError, ValueError):
            return False


@cache
def env_class(name: str) -> type[Environment]:
    return registry.env_class(name)


@cache
def tasks_of(name: str, split: str) -> Sequence[Task]:
    """Return the tasks of a split, read once."""
    cls = env_class(name)
    if split not in cls.spec.splits:
        raise ApiError(404, f"{name} has no split {split!r}; it has {', '.join(cls.spec.splits)}")
    return cls.tasks(split)


async def state_of(client: EnvClient) -> dict[str, object]:
    """Return what there is to see of an episode now."""
    picture = await client.render()
    if picture is not None and len(picture) > MAX_PICTURE_BYTES:
        picture = None
    encoded = None if picture is None else base64.b64encode(picture).decode("ascii")
    return {
        "observation": await client.observation(),
        "details": dict(await client.details()),
        "picture": None if encoded is None else f"data:image/png;base64,{encoded}",
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
