"""The desk of one episode: the record, the limits, the sessions, behind what agents see.

Every context that an agent begins is a record and an engine session of its own. Whatever agents
do, each token that the policy samples is in exactly one sample with a loss.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from agentgym_rl.agents.desk import AttemptOver, Credit, Piece, Reply
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.envs.client.base import EnvClient
from agentgym_rl.errors import EnvError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.clock import episode_time
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.types import (
    Completion,
    Message,
    Round,
    Sample,
    SamplingParams,
    SegmentKind,
    StepResult,
    StopReason,
    Task,
)


class EpisodeDesk:
    """One episode of one client; `close` gives the engine's session back."""

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
        self._task, self._engine, self._renderer = task, engine, renderer
        self._limits, self._key, self._temperature = limits, key, temperature
        self._client: EnvClient | None = None
        self._contexts = list[RolloutHandler]()
        self._session: EngineSession | None = engine.session(key)
        self._num_sessions = 1
        self._unseen = list[int]()
        """Tokens of the present context that its session has not been given."""
        self._texts = list[str]()
        """What is shown with the next reply's request."""
        self._attempt = -1
        self._generation_s, self._environment_s = 0.0, 0.0
        """Of the present round."""
        self.rounds = list[Round]()
        self.messages = list[Message]()
        self.stop_reason: StopReason | None = None

    def connect(self, client: EnvClient) -> None:
        """Play with this client; its place is the caller's to give back."""
        self._client = client

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def is_over(self) -> bool:
        return self.stop_reason is not None

    @property
    def has_succeeded(self) -> bool:
        return self.stop_reason is StopReason.SUCCESS

    @property
    def max_reply_tokens(self) -> int:
        return self._limits.max_tokens_per_round

    @property
    def reward(self) -> float:
        """What the present attempt has earned."""
        return sum(round_.reward for round_ in self._rounds_of_attempt())

    def samples(self) -> tuple[Sample, ...]:
        """Return a sample for each context that the policy replied in."""
        return tuple(context.sample() for context in self._contexts if any(context.loss_mask))

    async def reset(self, *, credit: Credit = "improvement") -> str:
        assert self._client is not None, "`connect` comes first"
        if self._attempt >= 0:
            self._take_rewards_back(credit)
        self._attempt += 1
        self.stop_reason = None
        started = time.monotonic()
        observation = await self._client.reset(self._task)
        self._environment_s += time.monotonic() - started
        return observation

    def begin(self, *pieces: Piece) -> None:
        assert len(pieces) % 2 and isinstance(pieces[-1], str), "texts and replies in turn"
        if self._contexts and any(self._context.loss_mask):
            self.close()
        context = RolloutHandler(attempt=self._attempt)
        for piece in pieces[:-1]:
            if isinstance(piece, str):
                self._append_text(context, piece, self._render(piece, context.token_ids))
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
        self._texts = [pieces[-1]]

    def tell(self, text: str) -> None:
        self._texts.append(text)

    def room(self, *texts: str) -> int:
        ids = self._context.token_ids
        return self._room(ids, "\n\n".join([*self._texts, *texts]))

    def room_in(self, *pieces: Piece) -> int:
        ids = list[int]()
        for piece in pieces[:-1]:
            ids += self._render(piece, ids) if isinstance(piece, str) else list(piece.token_ids)
        last = pieces[-1]
        assert isinstance(last, str), "a context ends with a text"
        return self._room(ids, last)

    async def ask(self, kind: SegmentKind = SegmentKind.ACTION) -> Reply:
        context, text = self._context, "\n\n".join(self._texts)
        assert text, "the policy is told something before it is asked"
        new_ids = self._render(text, context.token_ids)
        room = self._limits.max_tokens - len(context) - len(new_ids)
        if room <= 0:
            self._refuse(len(context) + len(new_ids))
        self._append_text(context, text, new_ids)
        self.messages.append(Message("user", text))
        self._texts = []
        started = episode_time()
        completion = await self._open_session().generate(
            [*self._unseen, *new_ids],
            SamplingParams(self._temperature, min(self._limits.max_tokens_per_round, room)),
        )
        self._generation_s += episode_time() - started
        self._unseen = []
        reply = Reply(
            self._renderer.decode_reply(completion.token_ids),
            completion.token_ids,
            kind,
            len(self.rounds),
        )
        context.append_reply(completion, reply.text, kind=kind, round_index=reply.round_index)
        self.messages.append(Message("assistant", reply.text))
        return reply

    def split(self, reply: Reply, action_start: int) -> Reply:
        num_tokens = self._renderer.num_tokens_before(reply.token_ids, action_start)
        self._context.split_reply(num_tokens)
        return Reply(reply.text, reply.token_ids, reply.kind, reply.round_index, num_tokens)

    async def act(self, action: str | None, *, complaint: str = "") -> StepResult:
        assert self._client is not None and not self.is_over, "an attempt is going on"
        started = time.monotonic()
        if action is None:
            result = StepResult(complaint, valid_action=False)
        else:
            result = await self._client.step(action)
        self._environment_s += time.monotonic() - started
        self._context.add_reward(result.reward)
        self.rounds.append(
            Round(
                self.messages[-1].content,
                action,
                result.observation,
                result.reward,
                result.valid_action,
                self._attempt,
                self._generation_s,
                self._environment_s,
            )
        )
        self._generation_s, self._environment_s = 0.0, 0.0
        self.stop_reason = self._reason_after(result)
        return result

    @property
    def _context(self) -> RolloutHandler:
        assert self._contexts, "`begin` comes first"
        return self._contexts[-1]

    def _rounds_of_attempt(self) -> list[Round]:
        return [round_ for round_ in self.rounds if round_.attempt == self._attempt]

    def _open_session(self) -> EngineSession:
        """Return the session of the present context; each has sampling noise of its own."""
        if self._session is None:
            key = session_key(self._key, "context", self._num_sessions)
            self._session = self._engine.session(key)
            self._num_sessions += 1
        return self._session

    def _render(self, text: str, before: Sequence[int]) -> list[int]:
        if not before:
            return self._renderer.prompt(text)
        return self._renderer.turn(text, reply_ids=before)

    def _append_text(self, context: RolloutHandler, text: str, ids: list[int]) -> None:
        if len(context):
            context.append_observation(ids, text)
        else:
            context.append_prompt(ids, text)

    def _room(self, before: Sequence[int], text: str) -> int:
        return self._limits.max_tokens - len(before) - len(self._render(text, before))

    def _refuse(self, num_tokens: int) -> None:
        """End the attempt for want of room; a task whose first prompt has none is an error."""
        if not self.messages:
            raise EnvError(
                f"the prompt of {self._task.id} has {num_tokens} tokens, which leaves no "
                f"room for a reply within {self._limits.max_tokens}; raise rollout.max_tokens, or "
                "use a model with a longer context"
            )
        self.stop_reason = self.stop_reason or StopReason.MAX_TOKENS
        raise AttemptOver

    def _reason_after(self, result: StepResult) -> StopReason | None:
        """Return why the attempt ends after this round, or None if it goes on."""
        limits, rounds = self._limits, self._rounds_of_attempt()
        if result.success:
            return StopReason.SUCCESS
        if result.terminated:
            return StopReason.TERMINATED
        if result.truncated or len(rounds) >= limits.max_rounds:
            return StopReason.MAX_ROUNDS
        limit = limits.max_invalid_actions
        latest = rounds[-limit:] if limit else []
        if limit and len(latest) == limit and not any(r.valid_action for r in latest):
            return StopReason.INVALID_ACTIONS
        return None

    def _take_rewards_back(self, credit: Credit) -> None:
        """Make the present attempt's rewards add up to nothing, before the next begins."""
        if credit == "episode":
            for context in self._contexts:
                if context.attempt == self._attempt:
                    context.drop_rewards()
            return
        latest = [context for context in self._contexts if any(context.loss_mask)]
        if latest and self.reward:
            latest[-1].add_reward(-self.reward)
