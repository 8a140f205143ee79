"""How the standard agent plays an episode: planning, memory, reflection, thoughts.

A context is the task, what is carried along (reflections, the plan, the summary) and rounds:

    user: first prompt, request   policy: reflection, plan or summary   ...
    user: observation             policy: reply                         ...

As long as the context only grows, all of it is one sample. A change (rounds leave, thoughts are
stripped, an attempt begins) begins a new context of the same pieces, with replies as sampled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentgym_rl.agents.desk import AttemptOver, Desk, Piece, Reply
from agentgym_rl.agents.formats import ParsedReply
from agentgym_rl.agents.requests import (
    GO_ON,
    LEARNED,
    LEFT_OUT,
    PLAN,
    REFLECT,
    SUMMARIZE,
    joined,
)
from agentgym_rl.config import AgentConfig
from agentgym_rl.types import SegmentKind, StepResult


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was said to the policy, and its reply."""

    text: str
    reply: Reply


class Parse(Protocol):
    """Reads the action out of a reply, as `Agent.parse` does."""

    def __call__(self, reply: str, *, cut_at: int | None = None) -> ParsedReply: ...


class Play:
    """One episode of the standard agent."""

    def __init__(
        self,
        config: AgentConfig,
        desk: Desk,
        *,
        first_prompt: Callable[[str], str],
        parse: Parse,
    ) -> None:
        self._config, self._desk = config, desk
        self._first_prompt, self._parse = first_prompt, parse
        self._reflections = list[Exchange]()

    async def to_end(self) -> None:
        """Play attempts until one succeeds or none is left."""
        reflection = self._config.reflection
        while True:
            # A full context ends an attempt, after which there may be another.
            with contextlib.suppress(AttemptOver):
                await self._attempt()
            if self._desk.has_succeeded or self._desk.attempt + 1 >= reflection.attempts:
                return
            # Without room for a reflection the next attempt begins without one.
            with contextlib.suppress(AttemptOver):
                await self._reflect()

    async def _attempt(self) -> None:
        desk = self._desk
        observation = await desk.reset(credit=self._config.reflection.credit)
        self._prompt, self._observation = self._first_prompt(observation), observation
        self._rounds = list[Exchange]()
        self._num_shown = 0
        self._plan: Exchange | None = None
        self._summary: Exchange | None = None
        self._rounds_since_plan = self._num_stalled = 0
        self._seen = {observation}
        desk.begin(*self._context(0))
        while not desk.is_over:
            await self._make_room()
            if self._is_plan_due():
                await self._make_plan()
            await self._play_round()

    async def _play_round(self) -> None:
        desk = self._desk
        reply = await desk.ask()
        parsed = self._parse(reply.text, cut_at=reply.cut_at)
        reply = desk.split(reply, parsed.action_start or 0)
        result = await desk.act(parsed.action, complaint=parsed.complaint)
        self._rounds.append(Exchange(self._observation, reply))
        self._num_shown += 1
        self._note_progress(result)
        self._observation = result.observation
        desk.tell(result.observation)

    def _note_progress(self, result: StepResult) -> None:
        is_new = result.valid_action and result.observation not in self._seen
        self._seen.add(result.observation)
        self._num_stalled = 0 if is_new or result.reward > 0 else self._num_stalled + 1
        self._rounds_since_plan += 1

    def _is_plan_due(self) -> bool:
        planning = self._config.planning
        if not planning.enabled:
            return False
        is_old = 0 < planning.every <= self._rounds_since_plan
        is_stalled = 0 < planning.on_stall <= self._num_stalled
        return self._plan is None or is_old or is_stalled

    async def _make_plan(self) -> None:
        self._desk.tell(PLAN)
        self._plan = Exchange(PLAN, await self._desk.ask(SegmentKind.PLAN))
        self._desk.tell(GO_ON)
        self._rounds_since_plan = self._num_stalled = 0

    async def _reflect(self) -> None:
        """Ask for a reflection, in as much of the attempt as leaves room for one."""
        room, has_memory = self._desk.room(REFLECT), self._config.memory.type != "full"
        if has_memory and self._num_shown and room < self._desk.max_reply_tokens:
            self._show(self._num_shown - 1, request=REFLECT)
        self._desk.tell(REFLECT)
        reply = await self._desk.ask(SegmentKind.REFLECTION)
        self._reflections.append(Exchange(LEARNED, reply))

    async def _make_room(self) -> None:
        """Begin a new context where memory or thoughts want one."""
        memory, shown = self._config.memory, self._num_shown
        if not shown:
            return
        if memory.type != "full" and (shown >= memory.rounds or not self._has_room()):
            if memory.type == "summary" and self._desk.room(SUMMARIZE) > 0:
                self._desk.tell(SUMMARIZE)
                reply = await self._desk.ask(SegmentKind.SUMMARY)
                self._summary = Exchange(SUMMARIZE, reply)
            self._show(min(shown - 1, memory.rounds // 2))
        elif self._strips_thoughts and self._rounds[-1].reply.num_thought_tokens:
            self._show(shown)

    def _has_room(self) -> bool:
        """Return whether all that may be asked for before the next action, and that, has room."""
        is_summarizing, is_planning = self._config.memory.type == "summary", self._is_plan_due()
        requests = [SUMMARIZE] * is_summarizing + [PLAN, GO_ON] * is_planning
        num_replies = 1 + is_summarizing + is_planning
        return self._desk.room(*requests) >= num_replies * self._desk.max_reply_tokens

    def _show(self, num_rounds: int, *, request: str = "") -> None:
        """Begin a context with the latest rounds, or, where they leave no room, with fewer."""
        if self._config.memory.type != "full":
            limit = self._desk.max_reply_tokens
            while num_rounds and self._room_with(num_rounds, request) < limit:
                num_rounds -= 1
        self._desk.begin(*self._context(num_rounds))
        self._num_shown = num_rounds

    def _room_with(self, num_rounds: int, request: str) -> int:
        *pieces, text = self._context(num_rounds)
        assert isinstance(text, str), "a context ends with a text"
        return self._desk.room_in(*pieces, joined(text, request))

    def _context(self, num_rounds: int) -> list[Piece]:
        """Return the task, what is carried along, and the latest rounds."""
        pieces, text = list[Piece](), self._prompt
        carried = [*self._reflections, self._plan, self._summary]
        for exchange in carried:
            if exchange is not None:
                pieces += [joined(text, exchange.text), exchange.reply]
                text = ""
        shown = self._rounds[len(self._rounds) - num_rounds :]
        texts = [*(exchange.text for exchange in shown), self._observation]
        # The first observation of an attempt is in its first prompt.
        is_whole = num_rounds == len(self._rounds)
        opening = text or ("" if self._is_plan_due() else GO_ON)  # the request for a plan follows
        texts[0] = opening if is_whole else joined(text, LEFT_OUT, texts[0])
        for said, exchange in zip(texts, shown, strict=False):
            reply = exchange.reply
            pieces += [said, reply.without_thought() if self._strips_thoughts else reply]
        return [*pieces, texts[-1]]

    @property
    def _strips_thoughts(self) -> bool:
        return self._config.past_thoughts == "strip"
