"""What an OpenEnv server serves: its spec, its tasks, and how it is told which task to play."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import quote

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.compat.openenv.mapping import ActionForm, OpenEnvOptions
from agentgym_rl.envs.compat.openenv.protocol import SPEC_FIELD
from agentgym_rl.envs.compat.openenv.transport import OpenEnvTransport
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import Object, wrong_type
from agentgym_rl.types import Task

_CATEGORY = "all"
"""The category of every task of a server that is not ours."""


class _Selector(Enum):
    """How a server is told which task to play."""

    TASK = auto()
    """Our servers take the task itself."""
    POSITION = auto()
    """Servers with a task API take a split and a position in it."""
    SEED = auto()
    """All others take a seed."""


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """One server, as `describe` found it."""

    spec: EnvSpec
    action: ActionForm
    route_name: str
    """The name of the environment in the paths of the task API."""
    selector: _Selector

    @property
    def is_ours(self) -> bool:
        """Whether the server reports all that our own protocol reports."""
        return self.selector is _Selector.TASK

    def reset_data(self, task: Task) -> Object:
        if self.selector is _Selector.TASK:
            return {"task": protocol.task_fields(task)}
        if self.selector is _Selector.SEED:
            return {"seed": task.index}
        position = task.index // len(self.spec.splits)
        seed = {"seed": task.seed} if task.seed else {}
        return {"split": task.split, "index": position, **seed}

    async def tasks(
        self, split: str, transport: OpenEnvTransport, options: OpenEnvOptions
    ) -> tuple[Task, ...]:
        """Return every task of a split. Raises EnvError or ProtocolError."""
        if self.selector is _Selector.SEED:
            # Test first, so that its seeds stay the same when there shall be more of train.
            bounds = {"test": (0, options.num_test)}
            first, num = bounds.get(split, (options.num_test, options.num_train))
            return self._numbered(split, range(first, first + num))
        path = f"/{quote(self.route_name)}"
        if self.selector is _Selector.TASK:
            specs = _list(await _fetch(transport, f"{path}/tasks", {"split": split}), "tasks")
            return tuple(
                protocol.decode_task(_object(spec, "a task").get("task")) for spec in specs
            )
        answer = await _fetch(transport, f"{path}/num_tasks", {"split": split})
        num = answer.get("num_tasks")
        if type(num) is not int:
            raise wrong_type("'num_tasks' must be int")
        # Unique over the splits, and the same whatever their sizes.
        splits = self.spec.splits
        return self._numbered(split, range(splits.index(split), num * len(splits), len(splits)))

    def _numbered(self, split: str, indices: Sequence[int]) -> tuple[Task, ...]:
        return tuple(Task(self.spec.name, split, index, _CATEGORY) for index in indices)


async def describe(
    transport: OpenEnvTransport, env: str | None, options: OpenEnvOptions
) -> ServerProfile:
    """Ask a server what it is. Raises EnvError, ProtocolError, or ValueError for another `env`."""
    metadata = await _fetch(transport, "/metadata")
    schema = (await _fetch(transport, "/schema")).get("action")
    if not isinstance(schema, dict) and options.action_field is None:
        raise wrong_type("/schema has no 'action': name the field of an action (action_field)")
    form = ActionForm.from_schema(schema or {}, options.action_field)
    names = await transport.fetch("/list_environments")
    route_name = str(names[0]) if isinstance(names, list) and names else env or "openenv"
    if isinstance(metadata.get(SPEC_FIELD), dict):
        spec = protocol.decode_spec(metadata[SPEC_FIELD])
        if env not in (None, spec.name):
            raise ValueError(f"{transport.url} serves {spec.name!r}, not {env!r}")
        return ServerProfile(spec, form, route_name, _Selector.TASK)
    splits = await _fetch_splits(transport, route_name)
    summary = str(metadata.get("description") or "an OpenEnv environment")
    spec = EnvSpec(
        name=env or str(metadata.get("name") or route_name),
        summary=summary.partition("\n")[0],
        instructions="\n\n".join(filter(None, (options.instructions or summary, form.note))),
        example_action=form.example,
        splits=splits or ("train", "test"),
        categories=(_CATEGORY,),
        max_rounds=options.max_rounds,
        success=f"the last reward is at least {options.success_reward:g}",
    )
    selector = _Selector.POSITION if splits else _Selector.SEED
    return ServerProfile(spec, form, route_name, selector)


async def _fetch_splits(transport: OpenEnvTransport, route_name: str) -> tuple[str, ...]:
    """Return the splits of the task API; none where the server does not have it."""
    splits = await transport.fetch(f"/{quote(route_name)}/splits")
    if splits is None:
        return ()
    if not isinstance(splits, list):
        raise wrong_type("the splits must be a list")
    return tuple(str(_object(split, "a split").get("name")) for split in splits)


async def _fetch(transport: OpenEnvTransport, path: str, body: Object | None = None) -> Object:
    """Return the object at a path; an empty one where the server has no such route."""
    value = await transport.fetch(path, body)
    return {} if value is None else _object(value, path)


def _object(value: object, what: str) -> Object:
    if not isinstance(value, dict):
        raise wrong_type(f"{what} must be an object")
    return value


def _list(fields: Object, name: str) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise wrong_type(f"{name!r} must be a list")
    return value
