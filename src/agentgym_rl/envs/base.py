"""The contract of an environment: one object is one episode at a time.

An author writes `spec`, `tasks`, `reset` and `step`; the server, the clients, the checker, the
player and training follow from these. What the last observation was, round numbers, deadlines
and leases belong to whoever holds the object (envs/service, envs/execution), not to the author.

Laws, which `envs/checking/checker.py` tests (laws.py has all of them by name):
- `reset(task)` gives the same observation every time, and the same actions the same results, in
  every process; an unknown task is refused.
- Any text is a legal argument of `step`; a bad action is an observation with `valid_action` false.
- `success` implies `terminated`; after `terminated` or `truncated` no step follows.
- The rewards of an episode sum to a value in `spec.reward_range`, wherever it is cut.
- `reward_parts`, where there are any, sum to the reward of their round; metrics are finite numbers.
- Two objects never share mutable state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from agentgym_rl.frozen import JsonValue, frozen_payload
from agentgym_rl.types import StepResult, Task

ToolSchema = Mapping[str, JsonValue]
"""A tool as chat templates and APIs take it: {"type": "function", "function": {"name": ...}}."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What is known of an environment before an episode starts."""

    name: str
    summary: str
    """One line for lists."""
    instructions: str
    """What the agent is told once, before the first observation: the world, the goal, the actions.
    It says nothing about the format of replies, which belongs to the agent."""
    example_action: str
    """One well-formed action, for the format's example."""
    splits: tuple[str, ...]
    categories: tuple[str, ...]
    """Every category a task can have, in reporting order."""
    max_rounds: int
    """A horizon within which the tasks can be solved; recipes may set another."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    success: str = "the environment reports success"
    """What counts as success, in words."""
    action_tags: tuple[str, ...] = ()
    """Names of the tags that actions are written in, where they are: with ("search", "answer") an
    action is `<search> a query </search>`, tags included. The formats `tags` and `function_call`
    offer one form, or one tool, for each. Empty where actions are plain text."""
    tools: tuple[ToolSchema, ...] = ()
    """Schemas of the tools, where every action is the call of one: `refund(order=7)`
    (envs/tools/text.py). The format `function_call` offers them through the model's chat template,
    the others in words. `ToolEnvironment` fills it in. Copied, and cannot be changed."""
    has_answer: bool = False
    """Whether the last action of an episode is an answer, the same in words when it is the same in
    meaning, so that several samples of a task can be put to a vote."""
    replay_is_safe: bool = False
    """Whether stored actions may be played again by somebody who does not know who wrote them.
    It promises that `reset`, `step`, `details` and `render` only compute: they run nothing that an
    action says, read no file that a task or an action names, and call no address. The web UI shows
    the state of a stored episode only where this is true."""
    keeps_pictures: bool = False
    """Whether stored episodes keep a picture per round (`render`), with the place that the action
    was on (`acted_on` of `details`: x, y, width and height in the picture). Right where the state
    cannot be computed again, as that of a web site."""

    def __post_init__(self) -> None:
        if self.tools:
            frozen = tuple(frozen_payload(tool, "a schema of tools") for tool in self.tools)
            object.__setattr__(self, "tools", frozen)


class Environment(ABC):
    """One episode of one environment. Construct, `reset`, `step` until the end, `close`.

    Synchronous and used by one thread at a time. Keyword arguments of the constructor are the
    environment's options (`env.options` in a recipe).
    """

    spec: ClassVar[EnvSpec]

    shares_thread: ClassVar[bool] = False
    """Whether all episodes of a process may run on one thread, one call after another. Right where
    every call only computes (a thread more would not make it faster), wrong where a call waits for
    something else, such as a browser or another server."""

    @classmethod
    def with_options(cls, options: Mapping[str, object]) -> type[Environment]:
        """Return the class whose `spec` and `tasks` hold under these options, which it takes too.

        It is this one unless options change the tasks or the tools. Raises ValueError for options
        that make no sense.
        """
        return cls

    @classmethod
    def is_prepared(cls) -> bool:
        """Return whether episodes can start at once; else the first one builds what they need."""
        return True

    @classmethod
    def require_split(cls, split: str) -> None:
        """Raise ValueError for a split that `spec` does not name; for `tasks` and `reset`."""
        if not isinstance(split, str):  # `reset` was given a text, which has a method of that name
            raise ValueError('reset takes a task, such as env.tasks("test")[0]')
        if split not in cls.spec.splits:
            known = ", ".join(cls.spec.splits)
            raise ValueError(f"{cls.spec.name} has no split {split!r}; it has {known}")

    @classmethod
    @abstractmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return every task of a split, in a canonical order that never depends on the machine.

        Raises ValueError for an unknown split.
        """

    @abstractmethod
    def reset(self, task: Task) -> str:
        """Start the task anew and return the first observation (it states the goal).

        Raises ValueError for an unknown task.
        """

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Do one action. Raises only when the environment itself is broken."""

    def available_actions(self) -> tuple[str, ...]:
        """Return the actions that make sense now; empty where they cannot be listed."""
        return ()

    def expert_action(self) -> str | None:
        """Return what an expert would do now; None where there is no expert."""
        return None

    def expert_thought(self) -> str | None:
        """Return why the expert would do so, as an agent would think it in a sentence or two.

        Demonstrations show it before the action. None where the expert only knows what to do.
        """
        return None

    def expert_hindsight(self) -> Sequence[str] | None:
        """Return the thoughts of a solved episode again, told knowing what came of each action.

        One per action of the expert. None where `expert_thought` said all there is to say.
        """
        return None

    def details(self) -> Mapping[str, JsonValue]:
        """Return facts about the present state beyond the observation, for people and viewers.

        Never shown to the agent, and not part of the contract of `step`; may be slow.
        """
        return {}

    def render(self) -> bytes | None:
        """Return a picture of the present state, PNG or JPEG; None where there is no picture."""
        return None

    def close(self) -> None:  # noqa: B027 - most environments hold nothing
        """Give back what the episode holds. Safe to repeat."""
