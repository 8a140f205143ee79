"""The desk of an episode whose policy tells text alone.

Contexts are lists of messages. Their tokens are what the endpoint says it counted; what it has not
counted yet, or does not tell, is estimated by its length.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.agents.desk import Piece, Reply, TextReply
from agentgym_rl.engines.base import ContextFullError, TextCompletion, TextEngine
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.rollout.desk import EpisodeDesk
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.types import Message, ReplyUsage, SamplingParams, SegmentKind, Task

_CHARS_PER_TOKEN = 4
"""Of English text with the usual tokenizers, about."""
_TOKENS_PER_MESSAGE = 4
"""What a chat template puts around a message, about."""


class TextDesk(EpisodeDesk):
    """Sends the whole context as messages with every request."""

    def __init__(
        self, task: Task, *, engine: TextEngine, limits: Limits, key: int, temperature: float
    ) -> None:
        super().__init__(task, limits=limits)
        self._engine, self._key, self._temperature = engine, key, temperature
        self._context = list[Message]()
        self._num_counted = self._tokens_counted = 0
        """The first messages of the context, and their tokens as the endpoint counted them."""
        self._num_replies = self._reply_tokens = 0
        self._logprobs = list[float]()

    @property
    def usage(self) -> ReplyUsage:
        logprobs = self._logprobs
        mean = sum(logprobs) / len(logprobs) if logprobs else None
        return ReplyUsage(self._reply_tokens, mean)

    def begin(self, *pieces: Piece) -> None:
        assert len(pieces) % 2 and isinstance(pieces[-1], str), "texts and replies in turn"
        self._context = _messages(pieces[:-1])
        self._num_counted = self._tokens_counted = 0
        self._texts = [pieces[-1]] if pieces[-1] else []

    def room(self, *texts: str) -> int:
        text = "\n\n".join([*self._texts, *texts])
        return self._limits.max_tokens - self._tokens([*self._context, Message("user", text)])

    def room_in(self, *pieces: Piece) -> int:
        return self._limits.max_tokens - _estimate(_messages(pieces))

    async def ask(
        self, kind: SegmentKind = SegmentKind.ACTION, *, stop: tuple[str, ...] = ()
    ) -> Reply:
        kind = SegmentKind(kind)  # what an agent of one's own says may be anything
        text = "\n\n".join(self._texts)
        assert text, "the policy is told something before it is asked"
        asked = [*self._context, Message("user", text)]
        num_tokens = self._tokens(asked)
        room = self._limits.max_tokens - num_tokens
        if room <= 0:
            self._refuse(num_tokens)
        max_tokens = min(self._limits.max_tokens_per_round, room)
        params = SamplingParams(self._temperature, max_tokens, stop=stop)
        seed = session_key(self._key, "reply", self._num_replies)
        started = time.monotonic()
        try:
            completion = await self._engine.reply(asked, params, seed=seed)
        except ContextFullError:
            self._refuse(num_tokens)
            raise
        self._generation_s += time.monotonic() - started
        self._texts = []
        self._note(asked, completion)
        cut_at = max_tokens if completion.is_cut else None
        return TextReply(completion.text, (), kind, len(self.rounds), cut_at=cut_at)

    def split(self, reply: Reply, action_start: int) -> Reply:
        # A reply that is all thought keeps its last character, as it would its last token.
        num_chars = max(0, min(action_start, len(reply.text) - 1))
        return replace(reply, num_thought_tokens=num_chars)

    def _note(self, asked: list[Message], completion: TextCompletion) -> None:
        said = Message("assistant", completion.text)
        self.messages += [asked[-1], said]
        self._context = [*asked, said]
        self._num_replies += 1
        self.num_replies_cut += completion.is_cut
        length = completion.num_tokens
        length = _estimate([said]) if length is None else length
        self._reply_tokens += length
        self._logprobs += completion.logprobs
        if completion.num_prompt_tokens is not None:
            self._num_counted = len(self._context)
            self._tokens_counted = completion.num_prompt_tokens + length

    def _tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a context that the present one is the beginning of."""
        return self._tokens_counted + _estimate(messages[self._num_counted :])


def _messages(pieces: Sequence[Piece]) -> list[Message]:
    return [
        Message("user", piece) if isinstance(piece, str) else Message("assistant", piece.text)
        for piece in pieces
    ]


def _estimate(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages have."""
    return sum(
        _TOKENS_PER_MESSAGE + -(-len(message.content) // _CHARS_PER_TOKEN) for message in messages
    )
