"""The contract of engines: an engine holds the weights, a session the context of one episode.

A text engine, such as somebody else's endpoint, returns only text: it can be evaluated, but nothing
can be learned from it.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, Message, SamplingParams

if TYPE_CHECKING:
    from agentgym_rl.engines.channels.delivery import WeightSource

_CONTEXT_FULL = re.compile(
    r"context_length_exceeded|context (?:length|window|size)|maximum context|too many tokens|"
    r"prompt is too long|max_model_len",
    re.IGNORECASE,
)
"""How servers say that a context is too long; they agree on little but the status 400."""


class EngineDiedError(EngineError):
    """The engine is gone for good: no request will ever be answered."""


class ContextFullError(EngineError):
    """The context is longer than the model accepts: a limit of the policy, not a failure."""


def says_context_full(status: int, text: str) -> bool:
    """Return whether a server's error means that the context is too long."""
    return status in (400, 413, 422) and _CONTEXT_FULL.search(text) is not None


def error_message(body: bytes) -> str:
    """Return the message of a server's error, {"error": {"message": ...}}, or the whole body."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = body.decode(errors="replace")
    return " ".join(str(message).split())[:500]


class EngineSession(ABC):
    """The growing context of one episode."""

    @abstractmethod
    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        """Append `new_ids` to the context, sample a reply, append it too, and return it.

        Raises ContextFullError if the context leaves no room for a reply, EngineError if generation
        fails or exceeds its deadline; the session can then not be used again.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop the context. Safe to repeat, also while a reply is being sampled."""


class Engine(ABC):
    """Samples replies for many sessions at once."""

    @abstractmethod
    def session(self, key: int) -> EngineSession:
        """Return a new session; `key` (64 bits) decides its sampling noise."""

    @property
    def max_context(self) -> int | None:
        """The longest context that the engine accepts; None if only the model limits it."""
        return None

    @abstractmethod
    def publish(self, version: int) -> None:
        """Use the weights of training step `version` for the next replies."""

    @property
    def reads_policy(self) -> bool:
        """Whether `publish` takes the weights of the policy, which must have them by then."""
        return True

    def follow(self, source: WeightSource) -> None:  # noqa: B027 - most read the policy
        """Take weights from the processes of a learner from now on, if the engine can."""

    def begin_update(self) -> None:  # noqa: B027 - engines with the learner's weights cannot
        """Note that the learner is about to change the weights, though replies continue.

        Until the next publication they are sampled with the weights that were published last.
        """

    def rest(self) -> None:  # noqa: B027 - most engines have no memory to release
        """Release memory for the learner until the next reply or publication.

        No reply may be under way.
        """

    def take_metrics(self) -> dict[str, float]:
        """Return what happened since the last call, by the names of metrics.

        `rollout/published_bytes` are of weights that were moved, `cluster/restarts_engine` and
        `cluster/time_lost_s` of processes that died and were replaced. An engine with the learner's
        own weights reports nothing.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Stop generating and release everything. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class TextCompletion:
    """One reply of a text engine."""

    text: str
    num_prompt_tokens: int | None = None
    """Tokens of its context; None if the engine does not report them."""
    num_tokens: int | None = None
    logprobs: tuple[float, ...] = ()
    """Of the reply's tokens, if the engine reports them."""
    is_cut: bool = False
    """Whether the token limit ended the reply."""


class TextEngine(ABC):
    """Answers conversations with text; it keeps no context, and its weights are not ours."""

    @abstractmethod
    async def reply(
        self, messages: Sequence[Message], params: SamplingParams, *, seed: int
    ) -> TextCompletion:
        """Return the model's next message; `seed` decides the noise if the model supports it.

        Raises ContextFullError if the context is too long, EngineError if the call fails or exceeds
        its deadline, ConfigError if no retry can help.
        """

    @abstractmethod
    async def close(self) -> None:
        """Drop the connections. Safe to repeat."""
