"""Episodes with the tools of an MCP server: tasks, the end of an episode, its reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, cast

from pydantic import ValidationError

from agentgym_rl.envs.adapters.mcp.configuration import TaskLine, read_entry
from agentgym_rl.envs.adapters.mcp.session import McpServer, McpSession
from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue, ToolSchema
from agentgym_rl.envs.tools.described import needed_by, parameters_of, signature_of
from agentgym_rl.envs.tools.environment import CallRecord, ToolEnvironment
from agentgym_rl.envs.tools.functions import Final, ToolError, tool_schema
from agentgym_rl.envs.tools.text import MalformedCallError, ToolCall, read_call
from agentgym_rl.frozen import frozen_payload
from agentgym_rl.lookup import load_object
from agentgym_rl.types import Task

_INSTRUCTIONS = "Use the tools to do what is asked, then call `answer`, which ends the episode."
_DEFAULT_GOAL = "Try the tools, then answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTask:
    """One thing to do with the tools."""

    goal: str
    """The first observation."""
    split: str = "train"
    category: str = "all"
    expert: tuple[str, ...] = ()
    """Calls that do it, e.g. 'add(a=1, b=2)'; they end with a call of `answer`."""
    data: Mapping[str, JsonValue] = field(default_factory=dict)
    """Whatever the reward function needs; never shown to the agent."""


@dataclass(frozen=True, slots=True)
class McpEpisode:
    """An episode at its end, for a reward function."""

    task: McpTask
    calls: tuple[CallRecord, ...]
    answer: str
    """What the agent answered."""
    final: str
    """What the server says to the final call, where there is one; else empty."""


Score = Callable[[McpEpisode], float]


def mcp_class(
    server: McpServer,
    *,
    name: str,
    tasks: Sequence[McpTask] = (),
    score: Score | None = None,
    final_call: str = "",
    instructions: str = _INSTRUCTIONS,
    max_rounds: int = 10,
) -> type[McpEnvironment]:
    """Return the environment of an MCP server. Its tools are listed once, by starting it.

    `score` gives each episode its reward, from 0 to 1, which is success; without it every reward
    is 0. `final_call`, such as 'dump()', is made when the agent has answered, and shows `score`
    the final state.
    """
    given = tuple(tasks) or (McpTask(goal=_DEFAULT_GOAL),)
    schemas = _listed(server)
    parameters = parameters_of(schemas)
    if "answer" in parameters:
        raise ValueError(f"the MCP server {server.shown!r} has a tool `answer`, the name of ours")
    _check_calls(given, final_call, parameters)
    if score is None and any(task.expert for task in given):
        raise ValueError("tasks with an expert need a `score`, or the expert would not succeed")
    listed = _listed_tasks(name, given)

    class Adapted(McpEnvironment):
        spec: ClassVar[EnvSpec] = EnvSpec(
            name=name,
            summary=f"Tools of the MCP server {server.shown}."[:200],
            instructions=instructions,
            example_action=ToolCall("answer", {"text": "..."}).text,
            splits=tuple(dict.fromkeys(task.split for task in given)),
            categories=tuple(dict.fromkeys(task.category for task in given)),
            max_rounds=max_rounds,
            success="the reward function gives 1" if score else "nothing: give a reward function",
        )
        _server: ClassVar[McpServer] = server
        _given: ClassVar[Sequence[McpTask]] = given
        _listed: ClassVar[Sequence[Task]] = listed
        _score: ClassVar[Sequence[Score]] = (score,) if score else ()
        _final_call: ClassVar[str] = final_call

    theirs = [McpTool(schema, parameters) for schema in schemas]
    Adapted.use_tools([*theirs, *Adapted._tools.values()])
    return Adapted


def configured_class(name: str) -> type[Environment]:
    """Return the environment of a server that `mcp.json` of the working folder names."""
    server, settings = read_entry(name)
    score: Score | None = None
    if settings.score:
        found = load_object(settings.score, given=f"mcp/{name}: score")
        if not callable(found):
            raise ValueError(f"mcp/{name}: score={settings.score!r} is not a function")
        score = found
    return mcp_class(
        server,
        name=f"mcp/{name}",
        tasks=read_tasks(Path(settings.tasks)) if settings.tasks else (),
        score=score,
        final_call=settings.final_call,
        instructions=settings.instructions or _INSTRUCTIONS,
        max_rounds=settings.max_rounds,
    )


def read_tasks(file: Path) -> tuple[McpTask, ...]:
    """Return the tasks of a file with one JSON object per line. Raises ValueError."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"tasks: {error}") from None
    tasks = list[McpTask]()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                tasks.append(McpTask(**dict(TaskLine.model_validate_json(line))))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                raise ValueError(f"{file}, line {number}: {place}: {first['msg']}") from None
    return tuple(tasks)


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a server, which checks the types of its arguments itself."""

    schema: ToolSchema
    all_parameters: Mapping[str, Sequence[str]]

    @property
    def name(self) -> str:
        return next(iter(parameters_of([self.schema])))

    @property
    def parameters(self) -> Sequence[str]:
        return self.all_parameters[self.name]

    def checked(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, object]:
        """Refuse missing and unknown names in our words; the rest is the server's to refuse."""
        missing = [name for name in needed_by(self.schema) if name not in arguments]
        unknown = [name for name in arguments if name not in self.parameters]
        if missing or (unknown and self.parameters):
            what = f"`{missing[0]}` is missing" if missing else f"`{unknown[0][:40]}` is unknown"
            raise MalformedCallError(
                f"`{self.name}` was not called: the argument {what}. "
                f"Call it as {signature_of(self.schema)}.",
                has_signature=True,
            )
        return arguments

    def call(self, environment: Environment, arguments: Mapping[str, object]) -> object:
        assert isinstance(environment, McpEnvironment), "it is a tool of one"
        return environment._call_server(self.name, arguments)


class McpEnvironment(ToolEnvironment):
    """One episode, with a server process of its own unless the server has a URL."""

    _server: ClassVar[McpServer]
    _given: ClassVar[Sequence[McpTask]]
    _listed: ClassVar[Sequence[Task]]
    _score: ClassVar[Sequence[Score]]
    _final_call: ClassVar[str]
    _session: McpSession | None = None

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        return [task for task in cls._listed if task.split == split]

    def begin(self, task: Task) -> str:
        self.close()
        self._task = self._given[task.index]
        self._answer = ""
        self._session = McpSession(self._server)
        return self._task.goal

    def answer(self, text: str) -> Final:
        """Give the answer, or say that you are done; this ends the episode."""
        self._answer = text
        return Final("The episode is over.")

    def score(self, calls: Sequence[CallRecord]) -> float:
        if not self._score:
            return 0.0
        final = ""
        if self._final_call:
            call = read_call(self._final_call, self._parameters)
            final = self._running().call(call.name, call.arguments).text
        (score,) = self._score
        return float(score(McpEpisode(self._task, tuple(calls), self._answer, final)))

    def expert_action(self) -> str | None:
        plan = [read_call(text, self._parameters) for text in self._task.expert]
        place = 0
        for call in self.calls:
            place += plan[place : place + 1] == [ToolCall(call.name, call.arguments)]
        return self._task.expert[place] if place < len(plan) else None

    def _call_server(self, name: str, arguments: Mapping[str, object]) -> str:
        # They came as JSON, and nothing has been made of them.
        answer = self._running().call(name, cast("Mapping[str, JsonValue]", arguments))
        if answer.is_error:
            raise ToolError(answer.text)
        return answer.text

    def _running(self) -> McpSession:
        assert self._session is not None, "an episode runs"
        return self._session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


@cache  # an environment is made often, and its tools do not change
def _listed(server: McpServer) -> tuple[ToolSchema, ...]:
    session = McpSession(server)
    try:
        return tuple(
            frozen_payload(
                tool_schema(tool.name, tool.description or "", tool.input_schema), "a schema of MCP"
            )
            for tool in session.tools()
        )
    finally:
        session.close()


def _listed_tasks(name: str, tasks: Sequence[McpTask]) -> tuple[Task, ...]:
    return tuple(
        Task(name, task.split, index, category=task.category, payload={"goal": task.goal})
        for index, task in enumerate(tasks)
    )


def _check_calls(
    tasks: Sequence[McpTask], final_call: str, parameters: Mapping[str, Sequence[str]]
) -> None:
    """Raise ValueError for a call that the server does not have."""
    known = {**parameters, "answer": ("text",)}
    for text in (*(call for task in tasks for call in task.expert), *filter(None, [final_call])):
        try:
            read_call(text, known)
        except MalformedCallError as error:
            raise ValueError(f"the call {text!r} cannot be made: {error}") from None
