"""`ToolEnvironment`: an environment whose actions are calls of tools.

An author writes `spec` and `tasks`, as for any environment, and

    begin(task)      prepares the state and returns the first observation
    its tools        every public method of the class: typed, documented, one action each
    score(calls)     the reward, over the final state (self) and the calls of the episode

The schemas of the tools are in `spec.tools`, put there when the class is made. A wrong call is an
observation that says how to call the tool.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue, ToolSchema
from agentgym_rl.envs.tools.functions import Final, ToolError, as_text, function_tool
from agentgym_rl.envs.tools.text import MalformedCallError, ToolCall, read_call
from agentgym_rl.errors import AgentGymError, EnvError
from agentgym_rl.types import StepResult, Task

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of an episode that reached its tool."""

    name: str
    arguments: Mapping[str, JsonValue]
    observation: str
    """What the agent was told."""
    is_refused: bool
    """Whether the tool raised ToolError."""


class Tool(Protocol):
    """What a tool is to its environment: a function here (functions.py), or one elsewhere."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> Sequence[str]: ...

    @property
    def schema(self) -> ToolSchema: ...

    def checked(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, object]:
        """Return the arguments to call it with, or raise MalformedCallError."""
        ...

    def call(self, environment: Environment, arguments: Mapping[str, object]) -> object: ...


class ToolEnvironment(Environment):
    """One episode. Public methods of a subclass are its tools; those with an underscore are not."""

    functions: ClassVar[Sequence[Callable[..., object]]] = ()
    """Plain functions that are tools as well."""
    _tools: ClassVar[Mapping[str, Tool]] = {}
    _parameters: ClassVar[Mapping[str, Sequence[str]]] = {}
    _known: ClassVar[dict[str, dict[int, Task]]]
    """Tasks of each split by index, as they were last listed."""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        cls._known = {}
        tools = [function_tool(method, is_method=True) for method in _tool_methods(cls)]
        cls.use_tools([*tools, *map(function_tool, cls.functions)])

    @classmethod
    def use_tools(cls, tools: Sequence[Tool]) -> None:
        """Make these the tools of the class; for adapters, which find them elsewhere."""
        cls._tools = {tool.name: tool for tool in tools}
        if len(cls._tools) < len(tools):
            raise TypeError(f"{cls.__name__} has two tools of one name")
        cls._parameters = {tool.name: tool.parameters for tool in tools}
        spec = getattr(cls, "spec", None)  # a class that others derive from may lack it
        if isinstance(spec, EnvSpec):
            cls.spec = replace(spec, tools=tuple(tool.schema for tool in tools))

    @abstractmethod
    def begin(self, task: Task) -> str:
        """Prepare the state for one of the listed tasks; return the first observation."""

    @abstractmethod
    def score(self, calls: Sequence[CallRecord]) -> float | Mapping[str, float]:
        """Return the reward of the episode that a tool has just ended.

        A mapping is the reward in named parts. The highest of `spec.reward_range` is success. An
        episode that a limit ends is not scored: its reward is 0.
        """

    @property
    def calls(self) -> Sequence[CallRecord]:
        """The calls of the episode so far that reached their tools."""
        return tuple(self._calls)

    def reset(self, task: Task) -> str:
        if task.split not in self._known:
            self._known[task.split] = {one.index: one for one in self.tasks(task.split)}
        known = self._known[task.split].get(task.index)
        if known is None or replace(task, seed=known.seed) != known:
            raise ValueError(f"{self.spec.name} has no task like {task!r}")
        self._calls = list[CallRecord]()
        self._num_wrong = 0
        return self.begin(task)

    def step(self, action: str) -> StepResult:
        try:
            call = read_call(action, self._parameters)
            arguments = self._tools[call.name].checked(call.arguments)
        except MalformedCallError as error:
            hint = f" For example: {self.spec.example_action}"
            return self._refused(str(error) + ("" if error.has_signature else hint))
        try:
            value = self._call(call, arguments)
        except ToolError as error:
            said = str(error) or "The tool refused the call."
            self._calls.append(CallRecord(call.name, call.arguments, said, is_refused=True))
            return self._refused(said)
        is_last = isinstance(value, Final)
        observation = as_text(value.value if isinstance(value, Final) else value)
        self._calls.append(CallRecord(call.name, call.arguments, observation, is_refused=False))
        if not is_last:
            return StepResult(observation, metrics=self._metrics())
        return self._scored(observation)

    def _call(self, call: ToolCall, arguments: Mapping[str, object]) -> object:
        """Call a tool; what it raises, but for ToolError, is a failure of the environment."""
        try:
            return self._tools[call.name].call(self, arguments)
        except (ToolError, AgentGymError):
            raise
        except Exception as error:
            raise EnvError(
                f"the tool {call.name} raised {type(error).__name__}: {error}"
            ) from error

    def _refused(self, observation: str) -> StepResult:
        self._num_wrong += 1
        return StepResult(observation, valid_action=False, metrics=self._metrics())

    def _scored(self, observation: str) -> StepResult:
        earned = self.score(tuple(self._calls))
        parts = earned if isinstance(earned, Mapping) else {}
        reward = sum(earned.values()) if isinstance(earned, Mapping) else float(earned)
        return StepResult(
            observation,
            reward=reward,
            terminated=True,
            success=reward >= self.spec.reward_range[1] - _ROUNDING,
            metrics=self._metrics(),
            reward_parts=parts,
        )

    def _metrics(self) -> dict[str, float]:
        return {"tool_calls": float(len(self._calls)), "wrong_calls": float(self._num_wrong)}


def _tool_methods(cls: type[ToolEnvironment]) -> list[Callable[..., object]]:
    """Return the public methods that are not of every environment, in the order of writing."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base is not ToolEnvironment and issubclass(base, ToolEnvironment):
            found.update((name, value) for name, value in vars(base).items())
    methods = {
        name: value
        for name, value in found.items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    for name, method in methods.items():
        theirs = getattr(ToolEnvironment, name, None)  # a method of every environment, or none
        if theirs is not None and not _takes_the_same(method, theirs):
            raise TypeError(
                f"{cls.__name__}.{name} has the name of a method of every environment, which "
                f"takes {inspect.signature(theirs)}: give the tool another name"
            )
    return [method for name, method in methods.items() if not hasattr(ToolEnvironment, name)]


def _takes_the_same(method: Callable[..., object], theirs: Callable[..., object]) -> bool:
    ours, other = (len(inspect.signature(one).parameters) for one in (method, theirs))
    return ours == other
