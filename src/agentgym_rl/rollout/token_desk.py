"""The desk of an episode whose engine tells tokens: exact records, and a session each.

Every context that an agent begins is a record and an engine session of its own. Whatever agents
do, each token that the policy samples is in exactly one sample with a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.agents.desk import Credit, Piece, Reply
from agentgym_rl.engines.base import ContextFullError, Engine, EngineSession
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.clock import episode_time
from agentgym_rl.rollout.desk import EpisodeDesk
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.types import Completion, Message, Sample, SamplingParams, SegmentKind, Task


class TokenDesk(EpisodeDesk):
    """Keeps the tokens of every context; `close` gives the engine's session back."""

    def __init__(
        self,
        task: Task,
        *,
        engine: Engine,
        renderer: ChatRenderer,
        limits: Limits,
        key: int,
        temperature: float,
    ) -> None:
        longest = min(limits.max_tokens, engine.max_context or limits.max_tokens)
        super().__init__(task, limits=replace(limits, max_tokens=longest))
        self._engine, self._renderer = engine, renderer
        self._key, self._temperature = key, temperature
        self._contexts = list[RolloutHandler]()
        self._session: EngineSession | None = engine.session(key)
        self._num_sessions = 1
        self._unseen = list[int]()
        """Tokens of the present context that its session has not been given."""

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def samples(self) -> tuple[Sample, ...]:
        return tuple(context.sample() for context in self._contexts if any(context.loss_mask))

    def begin(self, *pieces: Piece) -> None:
        assert len(pieces) % 2 and isinstance(pieces[-1], str), "texts and replies in turn"
        if self._contexts and any(self._context.loss_mask):
            self.close()
        context = RolloutHandler(attempt=self._attempt)
        for piece in pieces[:-1]:
            if isinstance(piece, str):
                ids = self._render(piece, context.token_ids, after=_kind_before(context))
                self._append_text(context, piece, ids)
                continue
            kept = Completion(
                piece.token_ids, (0.0,) * len(piece.token_ids), is_stopped=True, version=0
            )
            context.append_reply(
                kept,
                piece.text,
                kind=piece.kind,
                is_learned=False,
                round_index=piece.round_index,
            )
            if piece.num_thought_tokens:
                context.split_reply(piece.num_thought_tokens)
        self._contexts.append(context)
        self._unseen = list(context.token_ids)
        self._texts = [pieces[-1]] if pieces[-1] else []

    def room(self, *texts: str) -> int:
        ids = self._context.token_ids
        text = "\n\n".join([*self._texts, *texts])
        return self._room(ids, text, after=_kind_before(self._context))

    def room_in(self, *pieces: Piece) -> int:
        ids, kind = list[int](), SegmentKind.PROMPT
        for piece in pieces[:-1]:
            if isinstance(piece, str):
                ids += self._render(piece, ids, after=kind)
            else:
                ids += piece.token_ids
                kind = piece.kind
        last = pieces[-1]
        assert isinstance(last, str), "a context ends with a text"
        return self._room(ids, last, after=kind)

    async def ask(
        self, kind: SegmentKind = SegmentKind.ACTION, *, stop: tuple[str, ...] = ()
    ) -> Reply:
        kind = SegmentKind(kind)  # what an agent of one's own says may be anything
        context, text = self._context, "\n\n".join(self._texts)
        assert text, "the policy is told something before it is asked"
        kind_before = _kind_before(context)
        new_ids = await self._render_soon(text, context.token_ids, after=kind_before)
        room = self._limits.max_tokens - len(context) - len(new_ids)
        if room <= 0:
            self._refuse(len(context) + len(new_ids))
        self._append_text(context, text, new_ids)
        is_result = kind_before is SegmentKind.ACTION
        self.messages.append(Message(self._renderer.result_role if is_result else "user", text))
        self._texts = []
        started = episode_time()
        max_tokens = min(self._limits.max_tokens_per_round, room)
        params = SamplingParams(self._temperature, max_tokens, stop=stop)
        try:
            completion = await self._open_session().generate([*self._unseen, *new_ids], params)
        except ContextFullError:
            self._note_full(len(context))
            raise
        self._generation_s += episode_time() - started
        self._unseen = []
        reply = Reply(
            self._renderer.decode_reply(completion.token_ids),
            completion.token_ids,
            kind,
            len(self.rounds),
            cut_at=None if completion.is_stopped else max_tokens,
        )
        self.num_replies_cut += reply.cut_at is not None
        context.append_reply(completion, reply.text, kind=kind, round_index=reply.round_index)
        self.messages.append(Message("assistant", reply.text))
        return reply

    def split(self, reply: Reply, action_start: int) -> Reply:
        num_tokens = self._renderer.num_tokens_before(reply.token_ids, action_start)
        self._context.split_reply(num_tokens)
        return replace(reply, num_thought_tokens=num_tokens)

    @property
    def _context(self) -> RolloutHandler:
        assert self._contexts, "`begin` comes first"
        return self._contexts[-1]

    def _note_full(self, num_tokens: int) -> None:
        """End the attempt at a limit of the engine's that was not known, and keep to it."""
        self.close()  # the session is spent
        self._limits = replace(self._limits, max_tokens=num_tokens)
        self._refuse(num_tokens)

    def _open_session(self) -> EngineSession:
        """Return the session of the present context; each has sampling noise of its own."""
        if self._session is None:
            key = session_key(self._key, "context", self._num_sessions)
            self._session = self._engine.session(key)
            self._num_sessions += 1
        return self._session

    def _render(self, text: str, before: Sequence[int], *, after: SegmentKind) -> list[int]:
        """Return the ids of a text that follows `before`, the last of which are of a kind."""
        if not before:
            return self._renderer.prompt(text)
        is_result = after is SegmentKind.ACTION
        return self._renderer.turn(text, reply_ids=before, is_result=is_result)

    async def _render_soon(
        self, text: str, before: Sequence[int], *, after: SegmentKind
    ) -> list[int]:
        """Return what `_render` does, without keeping other episodes from going on."""
        if not before:
            return await self._renderer.prompt_soon(text)
        is_result = after is SegmentKind.ACTION
        return await self._renderer.turn_soon(text, reply_ids=before, is_result=is_result)

    def _append_text(self, context: RolloutHandler, text: str, ids: list[int]) -> None:
        if len(context):
            context.append_observation(ids, text)
        else:
            context.append_prompt(ids, text)

    def _room(self, before: Sequence[int], text: str, *, after: SegmentKind) -> int:
        return self._limits.max_tokens - len(before) - len(self._render(text, before, after=after))

    def _note_reward(self, reward: float) -> None:
        self._context.add_reward(reward)

    def _take_rewards_back(self, credit: Credit) -> None:
        if credit == "episode":
            for context in self._contexts:
                if context.attempt == self._attempt:
                    context.drop_rewards()
            return
        latest = [context for context in self._contexts if any(context.loss_mask)]
        if latest and self.reward:
            latest[-1].add_reward(-self.reward)


def _kind_before(context: RolloutHandler) -> SegmentKind:
    """Return what a context ends with; the prompt is still to come in one that is empty."""
    return context.segments[-1].kind if context.segments else SegmentKind.PROMPT
