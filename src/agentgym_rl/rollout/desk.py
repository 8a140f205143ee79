"""The desk of one episode: the environment, the limits and the record of what was said and done.

What the policy is shown and how it is asked is left to two kinds of desk: `TokenDesk` for engines
that tell tokens, `TextDesk` for endpoints that tell text alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from agentgym_rl.agents.desk import AttemptOver, Credit, Piece, Reply
from agentgym_rl.envs.client import EnvClient
from agentgym_rl.errors import PromptTooLongError
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.types import (
    Message,
    ReplyUsage,
    Round,
    Sample,
    SegmentKind,
    StepResult,
    StopReason,
    Task,
)


class EpisodeDesk(ABC):
    """One episode of one client; `close` gives back what the episode holds of an engine."""

    def __init__(self, task: Task, *, limits: Limits) -> None:
        self._task, self._limits = task, limits
        self._client: EnvClient | None = None
        self._rewards = EpisodeRewards()
        self._attempt = -1
        self._texts = list[str]()
        """What is shown with the next reply's request."""
        self._generation_s, self._environment_s = 0.0, 0.0
        """Of the present round."""
        self.rounds = list[Round]()
        self.messages = list[Message]()
        self.num_replies_cut = 0
        self.stop_reason: StopReason | None = None

    def connect(self, client: EnvClient, rewards: EpisodeRewards) -> None:
        """Play with this client; its place is the caller's to give back."""
        self._client, self._rewards = client, rewards

    def close(self) -> None:  # noqa: B027 - an endpoint holds nothing for an episode
        """Give back what the engine holds for this episode. Safe to repeat."""

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

    @property
    def has_replies(self) -> bool:
        """Whether the policy has said anything."""
        return any(message.role == "assistant" for message in self.messages)

    @property
    def usage(self) -> ReplyUsage | None:
        """What is known of the tokens of an endpoint; None where samples have them."""
        return None

    def samples(self) -> tuple[Sample, ...]:
        """Return a sample for each context that the policy replied in, where tokens are known."""
        return ()

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

    def tell(self, text: str) -> None:
        self._texts.append(text)

    @abstractmethod
    def begin(self, *pieces: Piece) -> None: ...

    @abstractmethod
    def room(self, *texts: str) -> int: ...

    @abstractmethod
    def room_in(self, *pieces: Piece) -> int: ...

    @abstractmethod
    async def ask(
        self, kind: SegmentKind = SegmentKind.ACTION, *, stop: tuple[str, ...] = ()
    ) -> Reply: ...

    @abstractmethod
    def split(self, reply: Reply, action_start: int) -> Reply: ...

    async def act(self, action: str | None, *, complaint: str = "") -> StepResult:
        assert self._client is not None and not self.is_over, "an attempt is going on"
        started = time.monotonic()
        if action is None:
            result = StepResult(complaint, valid_action=False)
        else:
            result = self._rewards.of_round(await self._client.step(action))
        self._environment_s += time.monotonic() - started
        self._note_reward(result.reward)
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
                result.metrics,
                result.reward_parts,
            )
        )
        self._generation_s, self._environment_s = 0.0, 0.0
        self.stop_reason = self._reason_after(result)
        return result

    def _note_reward(self, reward: float) -> None:  # noqa: B027 - text has no such place
        """Put a reward where the latest reply's tokens are, if they are known."""

    def _take_rewards_back(self, credit: Credit) -> None:  # noqa: B027 - as above
        """Make the present attempt's rewards add up to nothing, before the next begins."""

    def _rounds_of_attempt(self) -> list[Round]:
        return [round_ for round_ in self.rounds if round_.attempt == self._attempt]

    def _refuse(self, num_tokens: int) -> None:
        """End the attempt for want of room; a task whose first prompt has none is an error."""
        if not self.has_replies:
            raise PromptTooLongError(
                f"the prompt of {self._task.id} has {num_tokens} tokens, which leaves no "
                f"room for a reply within {self._limits.max_tokens}; raise rollout.max_tokens, or "
                "use a model (or a server of it) with a longer context"
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
