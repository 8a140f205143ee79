"""A desk at which the expert sits in the policy's place: how demonstrations of an agent are made.

The agent plays as it always does, so what it is shown, and where its contexts begin, is what a
policy meets later. Tokens are characters here: there is no tokenizer yet, and none is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from agentgym_rl.agents.desk import Credit, Piece, Reply
from agentgym_rl.agents.requests import plan_of, summary_of
from agentgym_rl.envs.demos import Demonstration
from agentgym_rl.types import Message, SamplingParams, SegmentKind, StepResult

_ENDLESS = 1 << 30
"""Limits on tokens are the rollout's: what does not fit is left out where it is learned from."""


class UndemonstratedError(ValueError):
    """The agent does not do what it is shown."""


@dataclass(frozen=True, slots=True)
class DemonstratedContext:
    """One context of a demonstration: messages in turn, and which of the replies are new in it."""

    messages: tuple[Message, ...]
    is_learned: tuple[bool, ...]


class ExpertDesk:
    """One demonstration as its agent sees it."""

    def __init__(
        self, demo: Demonstration, write: Callable[[str], str], *, result_role: str = "user"
    ) -> None:
        """Let the expert's actions be replied as `write` says, and answered in a role."""
        self._demo, self._write, self._result_role = demo, write, result_role
        self._role = "user"
        """Of the next text."""
        self._num_done = 0
        self._contexts = list[list[tuple[Message, bool]]]()
        self._texts = list[str]()
        self._attempt = -1

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def is_over(self) -> bool:
        return self.has_succeeded

    @property
    def has_succeeded(self) -> bool:
        return self._num_done == len(self._demo.actions)

    @property
    def max_reply_tokens(self) -> int:
        return 1

    def contexts(self) -> tuple[DemonstratedContext, ...]:
        """Return the contexts in which something was replied."""
        told = [list(zip(*context, strict=True)) for context in self._contexts if context]
        made = [DemonstratedContext(tuple(said), tuple(learned)) for said, learned in told]
        return tuple(context for context in made if any(context.is_learned))

    async def reset(self, *, credit: Credit = "improvement") -> str:
        if self._attempt >= 0:
            raise UndemonstratedError("a demonstration is one attempt; the expert does not fail")
        self._attempt += 1
        return self._demo.observations[0]

    def begin(self, *pieces: Piece) -> None:
        context = list[tuple[Message, bool]]()
        self._role = "user"
        for piece in pieces[:-1]:
            if isinstance(piece, str):
                context.append((Message(self._role, piece), False))
            else:
                text = "".join(map(chr, piece.token_ids))
                context.append((Message("assistant", text), False))
                self._role = self._role_after(piece.kind)
        last = pieces[-1]
        assert isinstance(last, str), "a context ends with a text"
        self._contexts.append(context)
        self._texts = [last] if last else []

    def tell(self, text: str) -> None:
        self._texts.append(text)

    def room(self, *texts: str) -> int:
        return _ENDLESS

    def room_in(self, *pieces: Piece) -> int:
        return _ENDLESS

    async def ask(
        self, kind: SegmentKind = SegmentKind.ACTION, *, stop: tuple[str, ...] = ()
    ) -> Reply:
        SamplingParams(stop=stop)  # what no other desk takes is refused here, too
        text = self._reply(kind)
        self._contexts[-1] += [
            (Message(self._role, "\n\n".join(self._texts)), False),
            (Message("assistant", text), True),
        ]
        self._texts = []
        self._role = self._role_after(kind)
        return Reply(text, tuple(map(ord, text)), kind, self._num_done)

    def split(self, reply: Reply, action_start: int) -> Reply:
        return Reply(reply.text, reply.token_ids, reply.kind, reply.round_index, action_start)

    async def act(self, action: str | None, *, complaint: str = "") -> StepResult:
        if self.has_succeeded:
            raise UndemonstratedError("the agent goes on acting after the expert has succeeded")
        expected = self._demo.actions[self._num_done]
        if action != expected:
            wrong = f"the agent took {action!r} for the expert's action {expected!r}"
            raise UndemonstratedError(f"{wrong}: {complaint}" if complaint else wrong)
        self._num_done += 1
        if self.has_succeeded:
            return StepResult("", 1.0, terminated=True, success=True)
        return StepResult(self._demo.observations[self._num_done])

    def _role_after(self, kind: SegmentKind) -> str:
        return self._result_role if kind is SegmentKind.ACTION else "user"

    def _reply(self, kind: SegmentKind) -> str:
        """Return the plan of what comes, the summary of what was, or else the next action."""
        actions, done = self._demo.actions, self._num_done
        if self.has_succeeded:
            raise UndemonstratedError("the agent asks for more after the expert has succeeded")
        if kind is SegmentKind.PLAN:
            return plan_of(actions[done:])
        if kind is SegmentKind.SUMMARY:
            return summary_of(actions[:done])
        return self._write(actions[done])


def run_at_once(play: Coroutine[object, object, None]) -> None:
    """Run an agent's play at a desk where nothing is waited for."""
    try:
        play.send(None)
    except StopIteration:
        return
    play.close()
    raise UndemonstratedError("the agent waited for something else than its desk")
