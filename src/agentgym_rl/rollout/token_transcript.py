"""The transcript of an episode whose engine reports tokens.

It keeps exact tokens, and has one engine session per context. Whatever agents do, each token that
the policy samples has a loss in exactly one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.agents.transcript import (
    ContextPart,
    Credit,
    NoRoomError,
    Reply,
    ReplyRequest,
    Transcript,
)
from agentgym_rl.engines.base import ContextFullError, Engine, EngineSession
from agentgym_rl.engines.clock import episode_time
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Completion, Sample, SamplingParams, SegmentKind, StepResult


class TokenTranscript(Transcript):
    """Keeps the tokens of every context; `close` gives the engine's session back."""

    def __init__(
        self,
        engine: Engine,
        renderer: ChatRenderer,
        *,
        max_tokens: int,
        key: int,
        temperature: float,
    ) -> None:
        super().__init__()
        self._engine, self._renderer = engine, renderer
        self._max_tokens = min(max_tokens, engine.max_context or max_tokens)
        self._key, self._temperature = key, temperature
        self._handler = RolloutHandler()
        self.messages = self._handler.messages
        self._session: EngineSession | None = engine.session(key)
        self._num_sessions = 1
        self._unseen = list[int]()
        """Tokens of the present context that its session has not been given."""

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def samples(self) -> tuple[Sample, ...]:
        return self._handler.samples()

    def begin(self, parts: Sequence[ContextPart], *, try_index: int) -> None:
        handler = self._handler
        if handler.is_learned_from:
            self.close()
        handler.begin_sequence(try_index=try_index)
        for part in parts:
            if isinstance(part, str):
                ids = self._render(part, handler.context_ids, after=self._latest_kind)
                self._append_text(part, ids, is_repeated=True)
                continue
            kept = Completion(
                part.token_ids, (0.0,) * len(part.token_ids), is_stopped=True, version=0
            )
            handler.append_reply(
                kept, part.text, kind=part.kind, is_learned=False, round_index=part.round_index
            )
            if part.thought_length:
                handler.split_reply(part.thought_length)
        self._unseen = handler.context_ids

    def room(self, text: str) -> int:
        return self._room(self._handler.context_ids, text, after=self._latest_kind)

    def room_in(self, parts: Sequence[ContextPart], text: str) -> int:
        ids, kind = list[int](), SegmentKind.PROMPT
        for part in parts:
            if isinstance(part, str):
                ids += self._render(part, ids, after=kind)
            else:
                ids += part.token_ids
                kind = part.kind
        return self._room(ids, text, after=kind)

    async def ask(self, request: ReplyRequest) -> Reply:
        handler = self._handler
        new_ids = await self._render_soon(request.text)
        num_tokens = len(handler) + len(new_ids)
        room = self._max_tokens - num_tokens
        if room <= 0:
            raise NoRoomError(num_tokens, self._max_tokens)
        self._append_text(request.text, new_ids)
        started = episode_time()
        max_tokens = min(request.max_tokens, room)
        params = SamplingParams(self._temperature, max_tokens, stop=request.stop)
        try:
            completion = await self._open_session().generate([*self._unseen, *new_ids], params)
        except ContextFullError as error:
            self.close()  # the session is spent
            self._max_tokens = num_tokens  # the engine's limit, which was not known before
            raise NoRoomError(num_tokens, num_tokens) from error
        seconds = episode_time() - started
        self._unseen = []
        text = self._renderer.decode_reply(completion.token_ids)
        handler.append_reply(completion, text, kind=request.kind, round_index=request.round_index)
        return Reply(
            text,
            completion.token_ids,
            request.kind,
            request.round_index,
            cut_at=None if completion.is_stopped else max_tokens,
            seconds=seconds,
        )

    def split(self, reply: Reply, action_start: int) -> Reply:
        num_tokens = self._renderer.num_tokens_before(reply.token_ids, action_start)
        self._handler.split_reply(num_tokens)
        return replace(reply, thought_length=num_tokens)

    def end_round(self, result: StepResult) -> None:
        self._handler.add_reward(result.reward)

    def take_rewards_back(self, reward: float, *, try_index: int, credit: Credit) -> None:
        if credit == "episode":
            self._handler.drop_rewards(try_index=try_index)
        else:
            self._handler.take_reward_back(reward)

    @property
    def _latest_kind(self) -> SegmentKind:
        """The kind that the present context ends with; PROMPT for an empty one."""
        segments = self._handler.segments
        return segments[-1].kind if segments else SegmentKind.PROMPT

    def _open_session(self) -> EngineSession:
        """Return the session of the present context; each has its own sampling noise."""
        if self._session is None:
            key = session_key(self._key, "context", self._num_sessions)
            self._session = self._engine.session(key)
            self._num_sessions += 1
        return self._session

    def _append_text(self, text: str, ids: list[int], *, is_repeated: bool = False) -> None:
        handler = self._handler
        if not len(handler):
            handler.append_prompt(ids, text, is_repeated=is_repeated)
            return
        is_result = self._latest_kind is SegmentKind.ACTION
        role = self._renderer.result_role if is_result else "user"
        handler.append_observation(ids, text, role=role, is_repeated=is_repeated)

    def _render(self, text: str, before: Sequence[int], *, after: SegmentKind) -> list[int]:
        """Return the ids of a text that follows `before`, whose last segment is of kind `after`."""
        if not before:
            return self._renderer.prompt(text)
        is_result = after is SegmentKind.ACTION
        return self._renderer.turn(text, reply_ids=before, is_result=is_result)

    async def _render_soon(self, text: str) -> list[int]:
        """Return the ids of the present context's next text without holding up other episodes."""
        before, after = self._handler.context_ids, self._latest_kind
        await self._renderer.encode_soon(text, is_result=after is SegmentKind.ACTION)
        return self._render(text, before, after=after)

    def _room(self, before: Sequence[int], text: str, *, after: SegmentKind) -> int:
        return self._max_tokens - len(before) - len(self._render(text, before, after=after))
