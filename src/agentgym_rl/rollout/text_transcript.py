"""The transcript of an episode whose policy reports only text.

Contexts are lists of messages. The endpoint counts their tokens; where it has not done so yet, or
does not report them, they are estimated from the length of the text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.agents.transcript import ContextPart, NoRoomError, Reply, ReplyRequest, Transcript
from agentgym_rl.engines.base import ContextFullError, TextCompletion, TextEngine
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.types import Message, ReplyUsage, SamplingParams

_CHARS_PER_TOKEN = 4
"""About right for English text with the usual tokenizers."""
_TOKENS_PER_MESSAGE = 4
"""About what a chat template puts around a message."""


class TextTranscript(Transcript):
    """Sends the whole context as messages with every request."""

    def __init__(
        self, engine: TextEngine, *, max_tokens: int, key: int, temperature: float
    ) -> None:
        super().__init__()
        self._engine, self._max_tokens = engine, max_tokens
        self._key, self._temperature = key, temperature
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

    def begin(self, parts: Sequence[ContextPart], *, try_index: int) -> None:
        self._context = _messages(parts)
        self._num_counted = self._tokens_counted = 0

    def room(self, text: str) -> int:
        return self._max_tokens - self._tokens([*self._context, Message("user", text)])

    def room_in(self, parts: Sequence[ContextPart], text: str) -> int:
        return self._max_tokens - _estimate(_messages([*parts, text]))

    async def ask(self, request: ReplyRequest) -> Reply:
        asked = [*self._context, Message("user", request.text)]
        num_tokens = self._tokens(asked)
        room = self._max_tokens - num_tokens
        if room <= 0:
            raise NoRoomError(num_tokens, self._max_tokens)
        max_tokens = min(request.max_tokens, room)
        params = SamplingParams(self._temperature, max_tokens, stop=request.stop)
        seed = session_key(self._key, "reply", self._num_replies)
        started = time.monotonic()
        try:
            completion = await self._engine.reply(asked, params, seed=seed)
        except ContextFullError as error:
            raise NoRoomError(num_tokens, self._max_tokens) from error
        seconds = time.monotonic() - started
        self._note(asked, completion)
        cut_at = max_tokens if completion.is_cut else None
        return Reply(
            completion.text, (), request.kind, request.round_index, cut_at=cut_at, seconds=seconds
        )

    def split(self, reply: Reply, action_start: int) -> Reply:
        # A reply that is all thought keeps its last character, as it would its last token.
        return replace(reply, thought_length=max(0, min(action_start, len(reply.text) - 1)))

    def _note(self, asked: list[Message], completion: TextCompletion) -> None:
        said = Message("assistant", completion.text)
        self.messages += [asked[-1], said]
        self._context = [*asked, said]
        self._num_replies += 1
        length = completion.num_tokens
        length = _estimate([said]) if length is None else length
        self._reply_tokens += length
        self._logprobs += completion.logprobs
        if completion.num_prompt_tokens is not None:
            self._num_counted = len(self._context)
            self._tokens_counted = completion.num_prompt_tokens + length

    def _tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a context that begins with the present one."""
        return self._tokens_counted + _estimate(messages[self._num_counted :])


def _messages(parts: Sequence[ContextPart]) -> list[Message]:
    return [
        Message("user", part) if isinstance(part, str) else Message("assistant", part.text)
        for part in parts
    ]


def _estimate(messages: Sequence[Message]) -> int:
    """Return an estimate of the messages' tokens."""
    return sum(
        _TOKENS_PER_MESSAGE + -(-len(message.content) // _CHARS_PER_TOKEN) for message in messages
    )
