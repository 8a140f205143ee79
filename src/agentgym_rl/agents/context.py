"""What the standard agent keeps in its context: planning, memory, reflection, thoughts.

A context is the task, what is carried along (reflections, the plan, the summary) and rounds:

    user: first prompt, request   policy: reflection, plan or summary   ...
    user: observation             policy: reply                         ...

As long as the context only grows, it is one sample. A change (rounds leave, thoughts are stripped,
a try begins) begins a new context of the same parts, with replies as sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.agents.requests import GO_ON, LEARNED, LEFT_OUT, PLAN, REFLECT, SUMMARIZE, joined
from agentgym_rl.agents.transcript import ContextPart, Reply
from agentgym_rl.config import AgentConfig
from agentgym_rl.types import SegmentKind, StepResult


@dataclass(frozen=True, slots=True)
class PromptedReply:
    """What was said to the policy, and its reply."""

    text: str
    reply: Reply


class AgentContext:
    """The context of one episode of the standard agent."""

    def __init__(
        self,
        config: AgentConfig,
        interaction: Interaction,
        *,
        first_prompt: Callable[[str], str],
    ) -> None:
        self._config, self._interaction = config, interaction
        self._first_prompt = first_prompt
        self._reflections = list[PromptedReply]()

    def begin_try(self, observation: str) -> None:
        """Show the task and the first observation of a try."""
        self._prompt, self._observation = self._first_prompt(observation), observation
        self._rounds = list[PromptedReply]()
        self._num_shown = 0
        self._plan: PromptedReply | None = None
        self._summary: PromptedReply | None = None
        self._rounds_since_plan = self._num_stalled = 0
        self._seen = {observation}
        self._interaction.begin(*self._parts(0))

    async def prepare_round(self) -> None:
        """Make room for the next reply, and ask for a plan if one is due."""
        await self._make_room()
        if self._is_plan_due():
            await self._make_plan()

    def end_round(self, reply: Reply, result: StepResult) -> None:
        """Keep a round, and show the policy what its action led to."""
        self._rounds.append(PromptedReply(self._observation, reply))
        self._num_shown += 1
        is_new = result.valid_action and result.observation not in self._seen
        self._seen.add(result.observation)
        self._num_stalled = 0 if is_new or result.reward > 0 else self._num_stalled + 1
        self._rounds_since_plan += 1
        self._observation = result.observation
        self._interaction.tell(result.observation)

    async def reflect(self) -> None:
        """Ask for a reflection, in as much of the try as leaves room for one."""
        interaction, has_memory = self._interaction, self._config.memory.type != "full"
        room = interaction.room(REFLECT)
        if has_memory and self._num_shown and room < interaction.max_reply_tokens:
            self._show(self._num_shown - 1, request=REFLECT)
        interaction.tell(REFLECT)
        reply = await interaction.ask(SegmentKind.REFLECTION)
        self._reflections.append(PromptedReply(LEARNED, reply))

    def _is_plan_due(self) -> bool:
        planning = self._config.planning
        if not planning.enabled:
            return False
        is_old = 0 < planning.every <= self._rounds_since_plan
        is_stalled = 0 < planning.on_stall <= self._num_stalled
        return self._plan is None or is_old or is_stalled

    async def _make_plan(self) -> None:
        self._interaction.tell(PLAN)
        self._plan = PromptedReply(PLAN, await self._interaction.ask(SegmentKind.PLAN))
        self._interaction.tell(GO_ON)
        self._rounds_since_plan = self._num_stalled = 0

    async def _make_room(self) -> None:
        """Begin a new context if memory or stripped thoughts require one."""
        memory, shown = self._config.memory, self._num_shown
        if not shown:
            return
        if memory.type != "full" and (shown >= memory.rounds or not self._has_room()):
            if memory.type == "summary" and self._interaction.room(SUMMARIZE) > 0:
                self._interaction.tell(SUMMARIZE)
                reply = await self._interaction.ask(SegmentKind.SUMMARY)
                self._summary = PromptedReply(SUMMARIZE, reply)
            self._show(min(shown - 1, memory.rounds // 2))
        elif self._strips_thoughts and self._rounds[-1].reply.thought_length:
            self._show(shown)

    def _has_room(self) -> bool:
        """Return whether there is room for the next action and all requests before it."""
        is_summarizing, is_planning = self._config.memory.type == "summary", self._is_plan_due()
        requests = [SUMMARIZE] * is_summarizing + [PLAN, GO_ON] * is_planning
        num_replies = 1 + is_summarizing + is_planning
        return self._interaction.room(*requests) >= num_replies * self._interaction.max_reply_tokens

    def _show(self, num_rounds: int, *, request: str = "") -> None:
        """Begin a context with the latest rounds, or with fewer if they leave no room."""
        if self._config.memory.type != "full":
            limit = self._interaction.max_reply_tokens
            while num_rounds and self._room_with(num_rounds, request) < limit:
                num_rounds -= 1
        self._interaction.begin(*self._parts(num_rounds))
        self._num_shown = num_rounds

    def _room_with(self, num_rounds: int, request: str) -> int:
        *parts, text = self._parts(num_rounds)
        assert isinstance(text, str), "a context ends with a text"
        return self._interaction.room_in(*parts, joined(text, request))

    def _parts(self, num_rounds: int) -> list[ContextPart]:
        """Return the task, what is carried along, and the latest rounds."""
        parts, text = list[ContextPart](), self._prompt
        for carried in [*self._reflections, self._plan, self._summary]:
            if carried is not None:
                parts += [joined(text, carried.text), carried.reply]
                text = ""
        shown = self._rounds[len(self._rounds) - num_rounds :]
        texts = [*(round_.text for round_ in shown), self._observation]
        # The first observation of a try is in its first prompt.
        is_whole = num_rounds == len(self._rounds)
        opening = text or ("" if self._is_plan_due() else GO_ON)  # the request for a plan follows
        texts[0] = opening if is_whole else joined(text, LEFT_OUT, texts[0])
        for said, round_ in zip(texts, shown, strict=False):
            reply = round_.reply
            parts += [said, reply.without_thought() if self._strips_thoughts else reply]
        return [*parts, texts[-1]]

    @property
    def _strips_thoughts(self) -> bool:
        return self._config.past_thoughts == "strip"
