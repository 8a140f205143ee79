"""What was said in an episode, context by context: the part of an interaction that owns contexts.

An interaction has one transcript. There are three kinds, all in `rollout/`: `token_transcript.py`
keeps the exact tokens of an engine, `text_transcript.py` the messages of an endpoint that reports
only text, and `demonstration.py` lets an expert reply in the policy's place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agentgym_rl.types import Message, ReplyUsage, Sample, SegmentKind, StepResult

Credit = Literal["improvement", "episode"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the policy, with the token ids that it sampled."""

    text: str
    token_ids: tuple[int, ...]
    """Empty where only the text is known."""
    kind: SegmentKind
    round_index: int
    """The round it belongs to, counted over all tries."""
    thought_length: int = 0
    """How many of its first tokens (without tokens: characters) are its thought."""
    cut_at: int | None = None
    """The token limit that cut it; None if it ended by itself."""
    seconds: float = field(default=0.0, compare=False)
    """How long the policy took to write it."""

    def without_thought(self) -> Reply:
        """Return the reply with only its action."""
        if self.token_ids:
            return replace(self, token_ids=self.token_ids[self.thought_length :], thought_length=0)
        return replace(self, text=self.text[self.thought_length :], thought_length=0)


ContextPart = str | Reply
"""A context is made of these in turn: texts that the policy is shown, and its replies."""


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """What the policy is asked for."""

    text: str
    """Shown right before the reply."""
    kind: SegmentKind
    round_index: int
    max_tokens: int
    """Limit on the tokens of the reply."""
    stop: tuple[str, ...] = ()
    """Texts that end the reply."""


class NoRoomError(Exception):
    """The context has no room for another reply."""

    def __init__(self, num_tokens: int, max_tokens: int) -> None:
        super().__init__(f"{num_tokens} tokens leave no room for a reply within {max_tokens}")
        self.num_tokens, self.max_tokens = num_tokens, max_tokens


class Transcript(ABC):
    """The contexts of one episode. A transcript without tokens has no samples."""

    def __init__(self) -> None:
        self.messages = list[Message]()
        """What was said, in order; what a new context repeats is listed once."""

    @property
    def usage(self) -> ReplyUsage | None:
        """What an endpoint reports about its tokens; None if samples hold them."""
        return None

    @abstractmethod
    def begin(self, parts: Sequence[ContextPart], *, try_index: int) -> None:
        """Begin a context with texts and replies in turn, a text first and a reply last."""

    @abstractmethod
    def room(self, text: str) -> int:
        """Return the tokens left for a reply once the present context shows this text."""

    @abstractmethod
    def room_in(self, parts: Sequence[ContextPart], text: str) -> int:
        """Return the tokens left for a reply in a context of these parts that shows a text."""

    @abstractmethod
    async def ask(self, request: ReplyRequest) -> Reply:
        """Return the policy's reply; raises NoRoomError if the context is full."""

    @abstractmethod
    def split(self, reply: Reply, action_start: int) -> Reply:
        """Return the latest reply with its thought marked, which ends at `action_start`."""

    def end_round(self, result: StepResult) -> None:  # noqa: B027 - text has no place for rewards
        """Take note of what the latest reply's action led to."""

    def take_rewards_back(  # noqa: B027 - as above
        self, reward: float, *, try_index: int, credit: Credit
    ) -> None:
        """Make the rewards of a try, which sum to `reward`, add up to 0."""

    def samples(self) -> tuple[Sample, ...]:
        """Return one sample for each context that the policy replied in."""
        return ()

    def close(self) -> None:  # noqa: B027 - an endpoint holds nothing for an episode
        """Release what an engine holds for this episode. Safe to repeat."""
