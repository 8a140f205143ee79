"""What an agent works at: the desk between it, the policy and the environment.

The desk (rollout/desk.py is the real one) keeps the record, the limits and the reasons to stop. An
agent only says what is shown, what is asked for, and what is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from agentgym_rl.types import SegmentKind, StepResult

Credit = Literal["improvement", "episode"]


class AttemptOver(Exception):  # noqa: N818 - an end, not an error
    """There is no room in the context for another reply."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of the policy, with the ids that it sampled."""

    text: str
    token_ids: tuple[int, ...]
    kind: SegmentKind
    round_index: int
    """The round it is of, counted over all attempts."""
    num_thought_tokens: int = 0
    """How many of its first tokens are its thought."""
    cut_at: int | None = None
    """The limit on tokens that cut it; None for a reply that ended by itself."""

    def without_thought(self) -> Reply:
        """Return the reply with the ids of its action alone."""
        rest = self.token_ids[self.num_thought_tokens :]
        return replace(self, token_ids=rest, num_thought_tokens=0)


@dataclass(frozen=True, slots=True)
class TextReply(Reply):
    """A reply of a policy that tells text alone: it has no ids, and its thought is counted in
    characters."""

    def without_thought(self) -> Reply:
        return replace(self, text=self.text[self.num_thought_tokens :], num_thought_tokens=0)


Piece = str | Reply
"""What a context is made of: the user's texts and the policy's replies, in turn."""


class Desk(Protocol):
    """One episode as its agent sees it."""

    @property
    def attempt(self) -> int:
        """The present attempt at the task, from 0."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the present attempt has ended: solved, beyond rescue, or at a limit."""
        ...

    @property
    def has_succeeded(self) -> bool:
        """Whether the present attempt solved the task."""
        ...

    @property
    def max_reply_tokens(self) -> int:
        """Limit on the tokens of one reply."""
        ...

    async def reset(self, *, credit: Credit = "improvement") -> str:
        """Begin an attempt and return the first observation; again for a fresh one.

        The reward of an episode is that of its last attempt. What an earlier one earned counts
        either not at all ("episode"), or where it was earned until the last token before the next
        attempt takes it back, so that what follows that token is the improvement ("improvement").
        """
        ...

    def begin(self, *pieces: Piece) -> None:
        """Begin a new context: texts and replies in turn, a text first and last.

        Replies keep the ids that were sampled, and are not learned from a second time. The last
        text may be empty where something is told before the next reply.
        """
        ...

    def tell(self, text: str) -> None:
        """Show the policy a text before its next reply, after an empty line if it is not alone."""
        ...

    def room(self, *texts: str) -> int:
        """Return the tokens left for a reply once these texts are told as well."""
        ...

    def room_in(self, *pieces: Piece) -> int:
        """Return the tokens left for a reply in a context that begins with these pieces."""
        ...

    async def ask(
        self, kind: SegmentKind = SegmentKind.ACTION, *, stop: tuple[str, ...] = ()
    ) -> Reply:
        """Return what the policy says next, at most until it has said one of the texts `stop`.

        Raises AttemptOver where there is no room for it.
        """
        ...

    def split(self, reply: Reply, action_start: int) -> Reply:
        """Tell the thought of the latest reply from its action, which begins at a character.

        A token across the border belongs to the action. Returns the reply with its thought marked.
        """
        ...

    async def act(self, action: str | None, *, complaint: str = "") -> StepResult:
        """Play a round with the latest reply; without an action, the answer is the complaint."""
        ...
