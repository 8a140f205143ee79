"""Episodes of TextCraft for the trainer of a peer: our tasks, prompts, token ids and limits.

What generates is behind `Generator`, so that these loops are tested without it. They do in one
thread what `rollout/` does for our own trainer, without restarts, clocks and statistics, which
would only slow the peer down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agentgym_rl.agents.agent import Agent
from agentgym_rl.envs.base import Environment
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.types import Task


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Of one episode."""

    rounds: int
    max_tokens_per_round: int
    max_tokens: int
    discount: float = 1.0
    """Of the reward, per round."""


class Reply(NamedTuple):
    """What was generated for an episode."""

    token_ids: list[int]
    logprobs: list[float]


class Generator(Protocol):
    """Generates replies, several at a time."""

    def ask(self, episodes: Sequence[PeerEpisode]) -> None:
        """Begin the next reply of each."""

    def replies(self) -> list[tuple[PeerEpisode, Reply]]:
        """Return replies that are whole by now; may take a moment, and may be none."""
        ...


class PeerEpisode:
    """One episode: its tokens so far, and what it earned."""

    def __init__(
        self,
        env: Environment,
        agent: Agent,
        renderer: ChatRenderer,
        task: Task,
        limits: EpisodeLimits,
    ) -> None:
        self._env, self._agent, self._renderer, self._limits = env, agent, renderer, limits
        self.prompt_ids = renderer.prompt(agent.first_prompt(env.reset(task)))
        self.ids = list(self.prompt_ids)
        self.mask, self.logprobs = list[int](), list[float]()
        """One entry per token after the prompt; sampled tokens have 1."""
        self.num_rounds, self.reward, self.success = 0, 0.0, False

    @property
    def completion_ids(self) -> list[int]:
        return self.ids[len(self.prompt_ids) :]

    @property
    def room(self) -> int:
        """For the next reply."""
        limits = self._limits
        return min(limits.max_tokens_per_round, limits.max_tokens - len(self.ids))

    def take(self, reply: Reply) -> bool:
        """Act as a reply says; return whether another one is wanted."""
        is_stopped = bool(reply.token_ids) and reply.token_ids[-1] in self._renderer.stop_token_ids
        cut_at = None if is_stopped else self.room
        self._add(reply.token_ids, 1, reply.logprobs)
        text = self._renderer.decode_reply(reply.token_ids)
        parsed = self._agent.parse(text, cut_at=cut_at)
        observation, is_last = parsed.complaint, False
        if parsed.action is not None:
            result = self._env.step(parsed.action)
            observation, is_last = result.observation, result.is_last
            self.reward += result.reward * self._limits.discount**self.num_rounds
            self.success = self.success or result.success
        self.num_rounds += 1
        if is_last or self.num_rounds >= self._limits.rounds:
            return False
        new = self._renderer.turn(observation, reply_ids=self.ids)
        if len(self.ids) + len(new) >= self._limits.max_tokens:
            return False
        self._add(new, 0, [0.0] * len(new))
        return True

    def _add(self, ids: Sequence[int], mask: int, logprobs: Sequence[float]) -> None:
        self.ids += ids
        self.mask += [mask] * len(ids)
        self.logprobs += logprobs


def play_stream(generator: Generator, episodes: Sequence[PeerEpisode]) -> None:
    """Play episodes, each of which asks for its next reply as soon as it has acted."""
    generator.ask(episodes)
    num_open = len(episodes)
    while num_open:
        ready = [(episode, episode.take(reply)) for episode, reply in generator.replies()]
        going_on = [episode for episode, goes_on in ready if goes_on]
        num_open -= len(ready) - len(going_on)
        if going_on:
            generator.ask(going_on)


def play_lockstep(generator: Generator, episodes: Sequence[PeerEpisode]) -> None:
    """Play episodes round by round, as TRL's own loop over tools does it."""
    active = list(episodes)
    while active:
        generator.ask(active)
        found = list[tuple[PeerEpisode, Reply]]()
        while len(found) < len(active):
            found += generator.replies()
        active = [episode for episode, reply in found if episode.take(reply)]
