"""Demonstrations of an agent: an expert replies, and its actions are replayed.

The agent plays as usual, so its prompts and contexts are the ones that a policy meets later.
There is no tokenizer yet, and none is needed: replies are texts.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.agents.limits import Limits
from agentgym_rl.agents.transcript import ContextPart, Reply, ReplyRequest, Transcript
from agentgym_rl.envs.demos.demonstration import Demonstration
from agentgym_rl.errors import AgentGymError
from agentgym_rl.rollout.episode import playing
from agentgym_rl.types import Message, SamplingParams, SegmentKind, StepResult, Task

_ENDLESS = 1 << 30
"""No limit on tokens here: samples that are too long are left out later."""
_MAX_STEPS = 5
"""Actions in a demonstrated plan or summary: it has to fit into a reply."""


class UndemonstratedError(AgentGymError, ValueError):
    """The agent does not do what the expert shows."""


@dataclass(slots=True)
class DemonstratedContext:
    """One context of a demonstration, and which of its messages are replies that are new in it."""

    messages: list[Message] = field(default_factory=list)
    is_learned: list[bool] = field(default_factory=list)

    def add(self, message: Message, *, is_learned: bool = False) -> None:
        self.messages.append(message)
        self.is_learned.append(is_learned)


class ReplayedDemonstration:
    """The environment of a demonstration: it accepts only the expert's actions."""

    def __init__(self, demo: Demonstration) -> None:
        self._demo, self._is_reset = demo, False
        self.done, self.to_come = list[str](), list(demo.actions)
        """The actions taken so far, and the ones that the expert takes next."""

    @property
    def thought(self) -> str:
        """Why the expert takes its next action; empty where it gives no reason."""
        place = len(self.done)
        return self._demo.thoughts[place] if place < len(self._demo.thoughts) else ""

    async def reset(self, task: Task) -> str:
        if self._is_reset:
            raise UndemonstratedError("a demonstration is one try; the expert does not fail")
        self._is_reset = True
        return self._demo.observations[0]

    async def step(self, action: str) -> StepResult:
        if action != self.to_come[0]:
            raise UndemonstratedError(_mistaken(action, self.to_come[0]))
        self.done.append(self.to_come.pop(0))
        if not self.to_come:
            return StepResult("", 1.0, terminated=True, success=True)
        return StepResult(self._demo.observations[len(self.done)])


class ExpertTranscript(Transcript):
    """Replies as the expert would, and keeps every context."""

    def __init__(self, replayed: ReplayedDemonstration, agent: Agent) -> None:
        super().__init__()
        self._replayed, self._agent = replayed, agent
        self._role = "user"
        """Of the next text."""
        self.contexts = list[DemonstratedContext]()

    def begin(self, parts: Sequence[ContextPart], *, try_index: int) -> None:
        context = DemonstratedContext()
        self._role = "user"
        for part in parts:
            if isinstance(part, str):
                context.add(Message(self._role, part))
            else:
                context.add(Message("assistant", part.text))
                self._role = self._role_after(part.kind)
        self.contexts.append(context)

    def room(self, text: str) -> int:
        return _ENDLESS

    def room_in(self, parts: Sequence[ContextPart], text: str) -> int:
        return _ENDLESS

    async def ask(self, request: ReplyRequest) -> Reply:
        SamplingParams(stop=request.stop)  # refuses what no engine takes
        text = self._reply(request.kind)
        self.contexts[-1].add(Message(self._role, request.text))
        self.contexts[-1].add(Message("assistant", text), is_learned=True)
        self._role = self._role_after(request.kind)
        return Reply(text, (), request.kind, request.round_index)

    def split(self, reply: Reply, action_start: int) -> Reply:
        return replace(reply, thought_length=action_start)

    def end_round(self, result: StepResult) -> None:
        if not result.valid_action:  # no action was found in the expert's reply
            raise UndemonstratedError(
                f"{_mistaken(None, self._replayed.to_come[0])}: {result.observation}"
            )

    def _role_after(self, kind: SegmentKind) -> str:
        return self._agent.result_role if kind is SegmentKind.ACTION else "user"

    def _reply(self, kind: SegmentKind) -> str:
        """Return a plan of the actions to come, a summary of those taken, or the next action."""
        done, to_come = self._replayed.done, self._replayed.to_come
        if not to_come:
            raise UndemonstratedError("the agent asks for more after the expert has succeeded")
        if kind is SegmentKind.PLAN:
            steps = enumerate(to_come[:_MAX_STEPS], 1)
            return "\n".join(f"{place}. {action}" for place, action in steps)
        if kind is SegmentKind.SUMMARY:
            return "Done: " + "; ".join(done[-_MAX_STEPS:])
        return self._agent.write(to_come[0], self._replayed.thought)


def demonstrated_contexts(demo: Demonstration, agent: Agent) -> list[DemonstratedContext]:
    """Return the contexts in which this agent would have acted like the expert.

    Raises UndemonstratedError where the agent does something else.
    """
    replayed = ReplayedDemonstration(demo)
    transcript = ExpertTranscript(replayed, agent)
    limits = Limits(_ENDLESS, max_tokens_per_round=1, max_tokens=_ENDLESS, max_seconds=_ENDLESS)
    interaction = Interaction(demo.task, replayed, transcript, limits=limits)
    with playing(agent):
        _run_at_once(agent.play(interaction))
    if replayed.to_come:
        raise UndemonstratedError("the agent stopped before the expert had succeeded")
    return [context for context in transcript.contexts if any(context.is_learned)]


def _run_at_once(played: Coroutine[object, object, None]) -> None:
    """Run an agent's play in an interaction where nothing is waited for."""
    try:
        played.send(None)
    except StopIteration:
        return
    played.close()
    raise UndemonstratedError("the agent waited for something other than its interaction")


def _mistaken(action: str | None, expected: str) -> str:
    return f"the agent took {action!r} for the expert's action {expected!r}"
