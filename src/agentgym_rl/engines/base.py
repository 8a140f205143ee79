"""What generates: an engine holds the weights, a session the context of one episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from agentgym_rl.types import Completion, SamplingParams


class EngineSession(ABC):
    """The growing context of one episode."""

    @abstractmethod
    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        """Append `new_ids` to the context, sample a reply, append it too, and return it.

        Raises EngineError when generation fails or passes its deadline; the session is then spent.
        """

    @abstractmethod
    def close(self) -> None:
        """Forget the context. Safe to repeat, and to call while a reply is being sampled."""


class Engine(ABC):
    """Samples replies for many sessions at once."""

    @abstractmethod
    def session(self, key: int) -> EngineSession:
        """Return a new session; `key` (64 bits) decides its sampling noise."""

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
