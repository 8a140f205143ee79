"""RolloutHandler: the exact record of one context of an episode, token by token.

It owns the token ids and everything that is aligned to them. Tokens are only ever appended, as
they were prompted or sampled; nothing is decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.types import Completion, Message, Sample, Segment, SegmentKind, StopReason


class RolloutHandler:
    """Collects one context: prompt, then replies and observations in turn, then the end.

    An episode whose agent never edits its context has one; each edit begins another.

    Example: a prompt of two tokens, a reply of two, an observation of one
        token_ids      [5, 8, 31, 2, 9]
        loss_mask      [0, 0,  1, 1, 0]
        attention_mask [1, 1,  1, 1, 1]
        position_ids   [0, 1,  2, 3, 4]
        sequence_ids   [0, 0,  0, 0, 0]
    """

    def __init__(self, *, attempt: int = 0) -> None:
        self.attempt = attempt
        self.token_ids: list[int] = []
        self.loss_mask: list[int] = []
        self.logprobs: list[float] = []
        self.token_rewards: list[float] = []
        self.segments: list[Segment] = []
        self.messages: list[Message] = []
        self.status: StopReason | None = None
        """Why the episode ended; None while it runs."""
        self._num_rounds = 0
        self._round_index = 0
        self._version = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_rounds(self) -> int:
        """Replies with an action so far."""
        return self._num_rounds

    @property
    def attention_mask(self) -> list[int]:
        """1 for every token: a sequence has no padding."""
        return [1] * len(self)

    @property
    def position_ids(self) -> list[int]:
        return list(range(len(self)))

    @property
    def sequence_ids(self) -> list[int]:
        """Which training sequence each token belongs to."""
        return [0] * len(self)

    @property
    def reward(self) -> float:
        """Sum of the rewards so far."""
        return sum(self.token_rewards)

    def append_prompt(self, token_ids: Sequence[int], text: str) -> None:
        """Begin with the prompt. Once, and first."""
        assert not self.token_ids, "the prompt comes first"
        self._append(token_ids, SegmentKind.PROMPT)
        self.messages.append(Message("user", text))

    def append_reply(
        self,
        completion: Completion,
        text: str,
        *,
        kind: SegmentKind = SegmentKind.ACTION,
        is_learned: bool = True,
        round_index: int | None = None,
    ) -> None:
        """Append what the policy sampled, here or, not `is_learned`, in an earlier context.

        Without `round_index` every action begins a new round.
        """
        assert self._expects_reply(), "a reply follows a prompt or an observation"
        self._round_index = self._num_rounds if round_index is None else round_index
        self._append(
            completion.token_ids,
            kind,
            loss_mask=int(is_learned),
            logprobs=completion.logprobs,
            version=completion.version if is_learned else None,
        )
        self.messages.append(Message("assistant", text))
        self._num_rounds += kind is SegmentKind.ACTION
        self._version = completion.version

    def split_reply(self, num_tokens: int) -> None:
        """Make the first `num_tokens` tokens of the latest reply, an action, its thought."""
        last = self.segments[-1]
        border = last.start + num_tokens
        assert last.kind is SegmentKind.ACTION, "only a reply with an action has a thought"
        assert border < last.end, "at least one token is the action"
        if num_tokens:
            self.segments[-1:] = [
                replace(last, kind=SegmentKind.THOUGHT, end=border),
                replace(last, start=border),
            ]

    def append_observation(self, token_ids: Sequence[int], text: str) -> None:
        """Append the environment's answer as the policy is going to see it."""
        assert not self._expects_reply(), "an observation follows a reply"
        self._append(token_ids, SegmentKind.OBSERVATION)
        self.messages.append(Message("user", text))

    def add_reward(self, reward: float) -> None:
        """Put a reward on the last token of the latest reply, with which the context ends."""
        assert self.segments and self.segments[-1].kind.is_reply, (
            "a reward belongs to the reply just appended"
        )
        self.token_rewards[-1] += reward

    def drop_rewards(self) -> None:
        """Forget what was earned."""
        self.token_rewards = [0.0] * len(self)

    def finish(self, reason: StopReason) -> None:
        """End the episode. Once."""
        assert self.status is None, "an episode ends once"
        self.status = reason

    def sample(self) -> Sample:
        """Return the training sequence; it ends with the last token that the policy sampled."""
        end = max(
            (segment.end for segment in self.segments if segment.kind.is_reply),
            default=0,
        )
        return Sample(
            token_ids=tuple(self.token_ids[:end]),
            loss_mask=tuple(self.loss_mask[:end]),
            logprobs=tuple(self.logprobs[:end]),
            rewards=tuple(self.token_rewards[:end]),
            segments=tuple(segment for segment in self.segments if segment.end <= end),
            version=self._version,
            attempt=self.attempt,
        )

    def _expects_reply(self) -> bool:
        return bool(self.segments) and not self.segments[-1].kind.is_reply

    def _append(
        self,
        token_ids: Sequence[int],
        kind: SegmentKind,
        *,
        loss_mask: int = 0,
        logprobs: Sequence[float] | None = None,
        version: int | None = None,
    ) -> None:
        assert token_ids, f"a segment of kind {kind} has at least one token"
        start = len(self)
        self.token_ids.extend(token_ids)
        self.loss_mask.extend([loss_mask] * len(token_ids))
        self.logprobs.extend([0.0] * len(token_ids) if logprobs is None else logprobs)
        self.token_rewards.extend([0.0] * len(token_ids))
        # An observation is of the round whose reply it answers.
        self.segments.append(Segment(kind, start, len(self), self._round_index, version))
        assert len(self.token_ids) == len(self.logprobs), "one log-probability a token"
