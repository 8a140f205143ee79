"""What a rollout sees of an environment, the same in process and over HTTP.

    source = LocalEnvSource("textcraft")            # or HttpEnvSource("http://127.0.0.1:8000")
    async with await source.open() as env:          # one client plays one episode at a time
        observation = await env.reset(task)
        while not env.is_over:
            result = await env.step(choose(observation))

The base classes here guard the contract (what may be called when, what an action may hold), so
that both kinds of client refuse the same calls with the same words; how a call travels is in
local.py and http.py.

What a call raises:
- `EpisodeStateError`: the caller's bug, e.g. a step after the end. It never reaches the
  environment, and the episode continues as if the call had not been made.
- `EnvBusyError`: `create` or `open` found no free place; try again later.
- `EnvTimeoutError`, `EnvAwayError`, `EnvGoneError`, `EnvError`: the environment or the way to it
  failed. The client is then spent: close it and open another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Self

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.episode import EpisodeStateError, where, without_surrogates
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError
from agentgym_rl.types import StepResult, Task


class _Phase(Enum):
    NEW = auto()
    """No place is taken yet."""
    IDLE = auto()
    """A place is taken; a reset must come first."""
    RUNNING = auto()
    ENDED = auto()
    """The last step was terminated or truncated."""
    SPENT = auto()
    """A call failed."""
    CLOSED = auto()


class EnvClient(ABC):
    """One place in an environment, playing one episode at a time. Calls must not overlap.

    A call that is cancelled leaves the episode in an unknown state: `reset` starts it anew.
    """

    def __init__(self, env: str) -> None:
        """`env` is the environment's name (`spec.name`)."""
        self._env = env
        self._phase = _Phase.NEW
        self._task: Task | None = None
        self._num_rounds = 0
        self._current_call: str | None = None
        self._failure = ""

    @property
    def task(self) -> Task | None:
        """The task of the present episode; None before the first reset."""
        return self._task

    @property
    def num_rounds(self) -> int:
        """How many steps the present episode has had; also the number of the next round."""
        return self._num_rounds

    @property
    def is_over(self) -> bool:
        """Whether the environment ended the episode."""
        return self._phase is _Phase.ENDED

    async def create(self) -> None:
        """Take a place for the episode. `EnvSource.open` has done it; safe to repeat."""
        if self._phase is _Phase.NEW:
            with self._calling("create"):
                await self._do_create()
                self._enter(_Phase.IDLE)
        self._refuse_unless_usable("create")

    async def reset(self, task: Task) -> str:
        """Start `task` anew and return the first observation. Ends the episode before it."""
        if task.env != self._env:
            raise ValueError(f"task {task.id} belongs to {task.env!r}, not to {self._env!r}")
        await self.create()
        with self._calling("reset"):
            self._phase, self._task, self._num_rounds = _Phase.IDLE, task, 0
            observation = await self._do_reset(task)
            self._enter(_Phase.RUNNING)
            return observation

    async def step(self, action: str) -> StepResult:
        """Do one action. Lone surrogates in it, which JSON cannot carry, arrive as "?"."""
        self._refuse_unless_started("step")
        if self._phase is _Phase.ENDED:
            raise EpisodeStateError(f"{self.where}: step after the end of the episode: reset first")
        with self._calling("step"):
            # A step that is cancelled may or may not have been done, so only a reset can follow.
            self._phase = _Phase.IDLE
            result = await self._do_step(self._num_rounds, without_surrogates(action))
            self._enter(_Phase.ENDED if result.is_last else _Phase.RUNNING)
            self._num_rounds += 1
            return result

    async def observation(self) -> str:
        """Return the latest observation again."""
        self._refuse_unless_started("observation")
        with self._calling("observation"):
            return await self._do_observation()

    async def available_actions(self) -> tuple[str, ...]:
        """Return the actions that make sense now; empty after the end and where unlisted."""
        self._refuse_unless_started("available_actions")
        if self._phase is _Phase.ENDED:
            return ()
        with self._calling("available_actions"):
            return await self._do_available_actions()

    async def details(self) -> Mapping[str, JsonValue]:
        """Return the environment's facts beyond the observation, for people and viewers."""
        self._refuse_unless_started("details")
        with self._calling("details"):
            return await self._do_details()

    async def render(self) -> bytes | None:
        """Return a picture of the present state, PNG or JPEG; None where there is no picture."""
        self._refuse_unless_started("render")
        with self._calling("render"):
            return await self._do_render()

    async def close(self) -> None:
        """Give the place back. Safe at any time and to repeat; never raises `EnvError`."""
        if self._phase is _Phase.CLOSED:
            return
        was_created = self._phase is not _Phase.NEW or self._current_call is not None
        self._phase = _Phase.CLOSED
        if was_created:
            await self._do_close()

    async def __aenter__(self) -> Self:
        await self.create()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def where(self) -> str:
        """Where the episode stands, for messages: "env babyai, task babyai/44, round 3"."""
        return where(self._env, self._task, self._num_rounds)

    @abstractmethod
    async def _do_create(self) -> None: ...

    @abstractmethod
    async def _do_reset(self, task: Task) -> str: ...

    @abstractmethod
    async def _do_step(self, round_index: int, action: str) -> StepResult: ...

    @abstractmethod
    async def _do_observation(self) -> str: ...

    @abstractmethod
    async def _do_available_actions(self) -> tuple[str, ...]: ...

    async def _do_details(self) -> Mapping[str, JsonValue]:
        return {}

    async def _do_render(self) -> bytes | None:
        return None

    @abstractmethod
    async def _do_close(self) -> None:
        """Give the place back; must not raise, whatever state the environment is in."""

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Refuse overlapping calls, and spend the client when one fails."""
        self._refuse_unless_usable(what)
        if self._current_call is not None:
            raise EpisodeStateError(
                f"{self.where}: {what} while {self._current_call} is running: await one call "
                "before the next, or use one client for each episode"
            )
        self._current_call = what
        try:
            yield
        except EnvBusyError:
            raise
        except EnvError as error:
            if self._phase is not _Phase.CLOSED:
                self._phase, self._failure = _Phase.SPENT, str(error)
            raise
        finally:
            self._current_call = None

    def _enter(self, phase: _Phase) -> None:
        """Move on after a call, unless the client was closed meanwhile."""
        self._refuse_unless_usable(self._current_call or "call")
        self._phase = phase

    def _refuse_unless_usable(self, what: str) -> None:
        if self._phase is _Phase.CLOSED:
            raise EnvGoneError(f"{self.where}: {what} on a closed client: open another")
        if self._phase is _Phase.SPENT:
            raise EnvGoneError(
                f"{self.where}: {what} after a failure: open another client ({self._failure})"
            )

    def _refuse_unless_started(self, what: str) -> None:
        self._refuse_unless_usable(what)
        if self._current_call is None and self._phase in (_Phase.NEW, _Phase.IDLE):
            raise EpisodeStateError(f"{self.where}: {what} before reset")


class EnvSource(ABC):
    """Where clients of one environment come from; shared by all episodes of a run."""

    @abstractmethod
    async def spec(self) -> EnvSpec:
        """Return what is known of the environment before an episode starts."""

    async def tasks(self, split: str) -> tuple[Task, ...]:
        """Return every task of a split, in order. Raises ValueError for an unknown split."""
        spec = await self.spec()
        if split not in spec.splits:
            raise ValueError(f"{spec.name} has no split {split!r}; it has {', '.join(spec.splits)}")
        return await self._do_tasks(split)

    async def open(self) -> EnvClient:
        """Return a client that has its place. The caller closes it."""
        client = await self._new_client()
        try:
            await client.create()
        except BaseException:
            await client.close()
            raise
        return client

    async def check(self) -> None:
        """Raise EnvError unless an episode could be opened now, EnvBusyError where it is full."""
        client = await self.open()
        await client.close()

    def take_metrics(self) -> dict[str, float]:
        """Return counts since the last call, by the names that they have in a run's metrics."""
        return {}

    @abstractmethod
    async def aclose(self) -> None:
        """Give back what the source holds. Close its clients first."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @abstractmethod
    async def _new_client(self) -> EnvClient: ...

    @abstractmethod
    async def _do_tasks(self, split: str) -> tuple[Task, ...]: ...
