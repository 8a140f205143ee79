"""What generates: an engine holds the weights, a session the context of one episode.

An engine that only tells text (an endpoint of others) is of another kind: it can be evaluated, and
nothing can be learned from it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, Message, SamplingParams

_CONTEXT_FULL = re.compile(
    r"context_length_exceeded|context (?:length|window|size)|maximum context|too many tokens|"
    r"prompt is too long|max_model_len",
    re.IGNORECASE,
)
"""How servers say that a context is too long; they agree on the status 400 and on little else."""


class EngineDiedError(EngineError):
    """The engine is gone for good: no request will ever be answered, however often it is asked."""


class ContextFullError(EngineError):
    """The context is longer than the model accepts: a limit of the policy, not a failure."""


def says_context_full(status: int, text: str) -> bool:
    """Return whether a server's error means that the context is too long."""
    return status in (400, 413, 422) and _CONTEXT_FULL.search(text) is not None


class EngineSession(ABC):
    """The growing context of one episode."""

    @abstractmethod
    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        """Append `new_ids` to the context, sample a reply, append it too, and return it.

        Raises ContextFullError for a context without room for a reply, EngineError when generation
        fails or passes its deadline; the session is then spent.
        """

    @abstractmethod
    def close(self) -> None:
        """Forget the context. Safe to repeat, and to call while a reply is being sampled."""


class Engine(ABC):
    """Samples replies for many sessions at once."""

    @abstractmethod
    def session(self, key: int) -> EngineSession:
        """Return a new session; `key` (64 bits) decides its sampling noise."""

    @property
    def max_context(self) -> int | None:
        """The longest context that the engine accepts; None where only the model limits it."""
        return None

    @abstractmethod
    def publish(self, version: int) -> None:
        """Let the next replies come from the weights of training step `version`."""

    def rest(self) -> None:  # noqa: B027 - most engines have nothing to give back
        """Give back memory until the next reply or publication: it is the learner's turn.

        No reply may be under way.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop generating and give back what the engine holds. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class TextCompletion:
    """One reply of an engine that only tells text."""

    text: str
    num_prompt_tokens: int | None = None
    """Tokens of the context that it answers; None where the engine does not tell."""
    num_tokens: int | None = None
    logprobs: tuple[float, ...] = ()
    """Of the reply's tokens, where the engine tells them."""
    is_cut: bool = False
    """Whether the token limit ended the reply."""


class TextEngine(ABC):
    """Answers conversations with text; it holds no context, and its weights are not ours."""

    @abstractmethod
    async def reply(
        self, messages: Sequence[Message], params: SamplingParams, *, seed: int
    ) -> TextCompletion:
        """Return what the model says next; `seed` decides the noise, as far as it heeds it.

        Raises ContextFullError for a context that is too long, EngineError when it fails or passes
        its deadline, ConfigError for what no repetition can mend.
        """

    @abstractmethod
    async def close(self) -> None:
        """Drop the connections. Safe to repeat."""
