"""How an agent's demonstrations are made: an expert replies, and its actions are replayed.

The agent plays as it always does, so what it is shown, and where its contexts begin, is what a
policy meets later. There is no tokenizer yet, and none is needed: replies are texts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace

from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.agents.limits import Limits
from agentgym_rl.agents.requests import plan_of, summary_of
from agentgym_rl.agents.transcript import ContextPart, Reply, ReplyRequest, Transcript
from agentgym_rl.envs.demos import Demonstration
from agentgym_rl.types import Message, SamplingParams, SegmentKind, StepResult, Task

_ENDLESS = 1 << 30
"""Limits on tokens are the rollout's: what does not fit is left out where it is learned from."""


class UndemonstratedError(ValueError):
    """The agent does not do what it is shown."""


@dataclass(frozen=True, slots=True)
class DemonstratedContext:
    """One context of a demonstration: messages in turn, and which of the replies are new in it."""

    messages: tuple[Message, ...]
    is_learned: tuple[bool, ...]


class ReplayedDemonstration:
    """The environment of a demonstration: it accepts the expert's actions and nothing else."""

    def __init__(self, demo: Demonstration) -> None:
        self._demo, self._num_resets = demo, 0
        self.num_done = 0

    @property
    def done(self) -> Sequence[str]:
        """The actions taken so far."""
        return self._demo.actions[: self.num_done]

    @property
    def to_come(self) -> Sequence[str]:
        """The actions that the expert takes from here on."""
        return self._demo.actions[self.num_done :]

    async def reset(self, task: Task) -> str:
        if self._num_resets:
            raise UndemonstratedError("a demonstration is one try; the expert does not fail")
        self._num_resets += 1
        return self._demo.observations[0]

    async def step(self, action: str) -> StepResult:
        if action != self.to_come[0]:
            raise UndemonstratedError(_mistaken(action, self.to_come[0]))
        self.num_done += 1
        if not self.to_come:
            return StepResult("", 1.0, terminated=True, success=True)
        return StepResult(self._demo.observations[self.num_done])


class ExpertTranscript(Transcript):
    """Replies as an expert would, and keeps every context."""

    def __init__(
        self, replayed: ReplayedDemonstration, write: Callable[[str], str], *, result_role: str
    ) -> None:
        """`write` makes a reply of an action; `result_role` is the role of what answers it."""
        super().__init__()
        self._replayed, self._write, self._result_role = replayed, write, result_role
        self._role = "user"
        """Of the next text."""
        self._contexts = list[list[tuple[Message, bool]]]()

    def contexts(self) -> tuple[DemonstratedContext, ...]:
        """Return the contexts in which something was replied."""
        told = [list(zip(*context, strict=True)) for context in self._contexts if context]
        made = [DemonstratedContext(tuple(said), tuple(learned)) for said, learned in told]
        return tuple(context for context in made if any(context.is_learned))

    def begin(self, parts: Sequence[ContextPart], *, try_index: int) -> None:
        context = list[tuple[Message, bool]]()
        self._role = "user"
        for part in parts:
            if isinstance(part, str):
                context.append((Message(self._role, part), False))
            else:
                context.append((Message("assistant", part.text), False))
                self._role = self._role_after(part.kind)
        self._contexts.append(context)

    def room(self, text: str) -> int:
        return _ENDLESS

    def room_in(self, parts: Sequence[ContextPart], text: str) -> int:
        return _ENDLESS

    async def ask(self, request: ReplyRequest) -> Reply:
        SamplingParams(stop=request.stop)  # refuses what no engine takes
        text = self._reply(request.kind)
        said = [Message(self._role, request.text), Message("assistant", text)]
        self._contexts[-1] += [(said[0], False), (said[1], True)]
        self.messages += said
        self._role = self._role_after(request.kind)
        return Reply(text, (), request.kind, request.round_index)

    def split(self, reply: Reply, action_start: int) -> Reply:
        return replace(reply, thought_length=action_start)

    def end_round(self, result: StepResult) -> None:
        if not result.valid_action:  # no action was found in the expert's own reply
            raise UndemonstratedError(
                f"{_mistaken(None, self._replayed.to_come[0])}: {result.observation}"
            )

    def _role_after(self, kind: SegmentKind) -> str:
        return self._result_role if kind is SegmentKind.ACTION else "user"

    def _reply(self, kind: SegmentKind) -> str:
        """Return the plan of what comes, the summary of what was, or else the next action."""
        if not self._replayed.to_come:
            raise UndemonstratedError("the agent asks for more after the expert has succeeded")
        if kind is SegmentKind.PLAN:
            return plan_of(self._replayed.to_come)
        if kind is SegmentKind.SUMMARY:
            return summary_of(self._replayed.done)
        return self._write(self._replayed.to_come[0])


def demonstrated_contexts(
    demo: Demonstration,
    play: Callable[[Interaction], Coroutine[object, object, None]],
    *,
    write: Callable[[str], str],
    result_role: str,
) -> tuple[DemonstratedContext, ...]:
    """Return the contexts of an agent that plays as the expert does.

    Raises UndemonstratedError where the agent does something else.
    """
    replayed = ReplayedDemonstration(demo)
    transcript = ExpertTranscript(replayed, write, result_role=result_role)
    limits = Limits(_ENDLESS, max_tokens_per_round=1, max_tokens=_ENDLESS, max_seconds=_ENDLESS)
    interaction = Interaction(demo.task, replayed, transcript, limits=limits)
    _run_at_once(play(interaction))
    if replayed.to_come:
        raise UndemonstratedError("the agent stopped before the expert had succeeded")
    return transcript.contexts()


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
