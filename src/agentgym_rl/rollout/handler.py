"""RolloutHandler: the exact record of one episode, token by token.

It owns the token ids of every context, everything aligned to them, and the messages of the episode.
Tokens are only appended, as they were prompted or sampled; nothing is decoded and encoded again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from agentgym_rl.types import Completion, Message, Sample, Segment, SegmentKind


@dataclass(slots=True)
class _Sequence:
    """One context, and what its tokens are."""

    try_index: int
    segments: list[Segment] = field(default_factory=list)
    num_rounds: int = 0
    round_index: int = 0
    """Of the latest reply."""
    version: int = 0


class RolloutHandler:
    """Collects the contexts of an episode, one after another: a prompt, then replies and
    observations in turn.

    An episode whose agent never edits its context has one sequence; each edit begins another.

    Example: a prompt of two tokens, a reply of two, an observation of one; then a context that
    begins with a prompt of one and has a reply of one
        token_ids      [5, 8, 31, 2, 9,   7, 40]
        loss_mask      [0, 0,  1, 1, 0,   0,  1]   sampled here by the policy
        attention_mask [1, 1,  1, 1, 0,   1,  1]   no reply follows the observation
        position_ids   [0, 1,  2, 3, 4,   0,  1]
        sequence_ids   [0, 0,  0, 0, 0,   1,  1]
    """

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.loss_mask: list[int] = []
        self.attention_mask: list[int] = []
        """1 where a reply of the same sequence attends: a sample has no other tokens."""
        self.position_ids: list[int] = []
        self.sequence_ids: list[int] = []
        self.logprobs: list[float] = []
        self.token_rewards: list[float] = []
        self.messages: list[Message] = []
        """What was said, in the order of time; what a new sequence repeats is not said again."""
        self._sequences = [_Sequence(try_index=0)]

    def __len__(self) -> int:
        """Return the number of tokens of the present sequence."""
        return self.position_ids[-1] + 1 if self.segments else 0

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments of the present sequence."""
        return self._sequences[-1].segments

    @property
    def context_ids(self) -> list[int]:
        """The token ids of the present sequence."""
        return self.token_ids[len(self.token_ids) - len(self) :]

    @property
    def is_learned_from(self) -> bool:
        """Whether the policy has replied in the present sequence."""
        return any(self.loss_mask[self._span(len(self._sequences) - 1)])

    def begin_sequence(self, *, try_index: int) -> None:
        """Begin another sequence, of one of the agent's tries."""
        if not self.segments:
            self._sequences.pop()
        self._sequences.append(_Sequence(try_index))

    def append_prompt(
        self, token_ids: Sequence[int], text: str, *, is_repeated: bool = False
    ) -> None:
        """Begin the present sequence with its prompt. Once, and first.

        `is_repeated`: an earlier sequence has the text already.
        """
        assert not self.segments, "the prompt comes first"
        self._append(token_ids, SegmentKind.PROMPT)
        if not is_repeated:
            self.messages.append(Message("user", text))

    def append_observation(
        self, token_ids: Sequence[int], text: str, *, role: str = "user", is_repeated: bool = False
    ) -> None:
        """Append the environment's answer as the policy will see it."""
        assert not self._expects_reply(), "an observation follows a reply"
        self._append(token_ids, SegmentKind.OBSERVATION)
        if not is_repeated:
            self.messages.append(Message(role, text))

    def append_reply(
        self,
        completion: Completion,
        text: str,
        *,
        kind: SegmentKind = SegmentKind.ACTION,
        is_learned: bool = True,
        round_index: int | None = None,
    ) -> None:
        """Append what the policy sampled here, or if not `is_learned`, in an earlier sequence.

        Without `round_index` every action begins a new round.
        """
        assert self._expects_reply(), "a reply follows a prompt or an observation"
        sequence = self._sequences[-1]
        sequence.round_index = sequence.num_rounds if round_index is None else round_index
        self._append(
            completion.token_ids,
            kind,
            loss_mask=int(is_learned),
            logprobs=completion.logprobs,
            version=completion.version if is_learned else None,
        )
        self.attention_mask[-len(self) :] = [1] * len(self)
        if is_learned:
            self.messages.append(Message("assistant", text))
        sequence.num_rounds += kind is SegmentKind.ACTION
        sequence.version = completion.version

    def split_reply(self, num_tokens: int) -> None:
        """Make the first `num_tokens` tokens of the latest reply, an action, its thought."""
        segments = self._sequences[-1].segments
        last = segments[-1]
        border = last.start + num_tokens
        assert last.kind is SegmentKind.ACTION, "only a reply with an action has a thought"
        assert border < last.end, "at least one token is the action"
        if num_tokens:
            segments[-1:] = [
                replace(last, kind=SegmentKind.THOUGHT, end=border),
                replace(last, start=border),
            ]

    def add_reward(self, reward: float) -> None:
        """Add a reward to the last token of the latest reply, before the next observation."""
        self._add_reward(len(self._sequences) - 1, reward)

    def take_reward_back(self, reward: float) -> None:
        """Take a reward back on the latest reply, whichever sequence has it."""
        replied = [n for n in range(len(self._sequences)) if any(self.loss_mask[self._span(n)])]
        if replied and reward:
            self._add_reward(replied[-1], -reward)

    def drop_rewards(self, *, try_index: int) -> None:
        """Forget what a try earned."""
        for number, sequence in enumerate(self._sequences):
            if sequence.try_index == try_index:
                span = self._span(number)
                self.token_rewards[span] = [0.0] * (span.stop - span.start)

    def sample(self) -> Sample:
        """Return the training sequence of the present sequence."""
        return self._sample(len(self._sequences) - 1)

    def samples(self) -> tuple[Sample, ...]:
        """Return a training sequence for each sequence that the policy replied in."""
        made = map(self._sample, range(len(self._sequences)))
        return tuple(sample for sample in made if any(sample.loss_mask))

    def _sample(self, number: int) -> Sample:
        """Return a sequence without the tokens that no reply attends to, which are its last."""
        sequence, span = self._sequences[number], self._span(number)
        attended = self.attention_mask[span]
        return Sample(
            token_ids=tuple(compress(self.token_ids[span], attended)),
            loss_mask=tuple(compress(self.loss_mask[span], attended)),
            logprobs=tuple(compress(self.logprobs[span], attended)),
            rewards=tuple(compress(self.token_rewards[span], attended)),
            segments=tuple(s for s in sequence.segments if attended[s.end - 1]),
            version=sequence.version,
            try_index=sequence.try_index,
        )

    def _add_reward(self, number: int, reward: float) -> None:
        segments = self._sequences[number].segments
        assert segments and segments[-1].kind.is_reply, (
            "a reward belongs to the reply just appended"
        )
        self.token_rewards[self._span(number).stop - 1] += reward

    def _span(self, number: int) -> slice:
        """Return where the tokens of a sequence are."""
        ids = self.sequence_ids
        return slice(bisect_left(ids, number), bisect_right(ids, number))

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
        num = len(token_ids)
        assert num, f"a segment of kind {kind} has at least one token"
        assert logprobs is None or len(logprobs) == num, "one log-probability per token"
        start, sequence = len(self), self._sequences[-1]
        self.token_ids.extend(token_ids)
        self.loss_mask.extend([loss_mask] * num)
        self.attention_mask.extend([0] * num)
        self.position_ids.extend(range(start, start + num))
        self.sequence_ids.extend([len(self._sequences) - 1] * num)
        self.logprobs.extend([0.0] * num if logprobs is None else logprobs)
        self.token_rewards.extend([0.0] * num)
        # An observation belongs to the round whose reply it answers.
        sequence.segments.append(Segment(kind, start, start + num, sequence.round_index, version))
