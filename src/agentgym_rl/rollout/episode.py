"""One episode from its start to its record; the loop inside it is `Agent.play`.

After an infrastructure failure, which never becomes a reward, the episode is restarted with a fresh
environment and the same sampling noise. All starts share the episode's time: with the same noise,
an episode that ran out of time would run out of it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.interaction import Interaction, TryOver
from agentgym_rl.agents.limits import Limits
from agentgym_rl.agents.transcript import Transcript
from agentgym_rl.engines.base import Engine, EngineDiedError, TextEngine
from agentgym_rl.engines.clock import EpisodeClock, running_clock
from agentgym_rl.engines.sampling import session_key
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.errors import AgentError, AgentGymError, EngineError, EnvError, PromptTooLongError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.text_transcript import TextTranscript
from agentgym_rl.rollout.token_transcript import TokenTranscript
from agentgym_rl.types import Episode, StopReason, Task

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parent.parent
_FIRST_PAUSE_S = 0.2
"""Before the first restart of an episode; four times as long before the second."""


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Which episode to play; `noise` distinguishes the sampling noise of collections."""

    task: Task
    sample_index: int
    noise: tuple[str | int, ...]
    temperature: float = 1.0

    @property
    def key(self) -> int:
        return session_key(*self.noise, self.task.id, self.sample_index)

    def has_pictures(self, share: float) -> bool:
        """Whether it is among the share of episodes that keep pictures."""
        return random.Random(self.key).random() < share


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """A policy whose engine reports tokens."""

    engine: Engine
    renderer: ChatRenderer

    def transcript(self, episode: EpisodeSpec, limits: Limits) -> Transcript:
        """Return the transcript of one start of an episode; the caller closes it."""
        return TokenTranscript(
            self.engine,
            self.renderer,
            max_tokens=limits.max_tokens,
            key=episode.key,
            temperature=episode.temperature,
        )


@dataclass(frozen=True, slots=True)
class TextPolicy:
    """A policy behind an endpoint that reports only text; nothing can be learned from it."""

    engine: TextEngine

    def transcript(self, episode: EpisodeSpec, limits: Limits) -> Transcript:
        return TextTranscript(
            self.engine,
            max_tokens=limits.max_tokens,
            key=episode.key,
            temperature=episode.temperature,
        )


@dataclass(frozen=True, slots=True)
class Participants:
    """Who takes part in every episode of a collection."""

    source: EnvSource
    agent: Agent
    policy: TokenPolicy | TextPolicy
    rewards: EpisodeRewards = field(default_factory=EpisodeRewards)
    label: str = ""
    """What the run's tasks call the environment, where that is not its name."""
    play_elsewhere: PlayEpisode | None = None
    """Plays an episode to its final reward in another process; None: it is played here."""

    def task_for_env(self, task: Task) -> Task:
        """Return a task of the run as the environment knows it, by its own name."""
        is_labelled = self.label and task.env == self.label
        return replace(task, env=self.agent.spec.name) if is_labelled else task

    @property
    def engine(self) -> Engine:
        """The engine of the policy that is learned."""
        return self._token_policy.engine

    def with_engine(self, engine: Engine) -> Participants:
        """Return the same participants, with the policy's replies from another engine."""
        return replace(self, policy=replace(self._token_policy, engine=engine))

    @property
    def _token_policy(self) -> TokenPolicy:
        assert isinstance(self.policy, TokenPolicy), "an endpoint that reports text is not trained"
        return self.policy


PlayEpisode = Callable[[EpisodeSpec, Participants, Limits], Awaitable[Episode]]


async def play_episode(spec: EpisodeSpec, participants: Participants, limits: Limits) -> Episode:
    """Play one episode to its final reward, here or wherever the participants are."""
    if participants.play_elsewhere is not None:
        return await participants.play_elsewhere(spec, participants, limits)
    episode = await run_episode(spec, participants, limits)
    return await participants.rewards.of_episode(episode)


async def run_episode(spec: EpisodeSpec, participants: Participants, limits: Limits) -> Episode:
    """Play one episode to its end; a failed one is restarted up to `limits.max_restarts` times.

    All starts share `limits.max_seconds`; the short pauses in between are on top.
    """
    num_restarts, seconds_left = 0, limits.max_seconds
    while True:
        start = _EpisodeStart(spec, participants, limits)
        await start.to_end(seconds_left)
        seconds_left = max(0.0, seconds_left - start.seconds)
        episode = start.record(num_restarts=num_restarts)
        if not episode.is_failed or start.is_final or num_restarts == limits.max_restarts:
            return episode
        logger.warning(
            "episode %s failed (%s), restart %d of %d: %s",
            spec.task.id, episode.stop_reason, num_restarts + 1, limits.max_restarts, episode.error,
        )  # fmt: skip
        # What failed may be restarting; with jitter, so that not all episodes return at once.
        await asyncio.sleep(_FIRST_PAUSE_S * 4**num_restarts * random.uniform(1.0, 1.5))
        num_restarts += 1


@contextlib.contextmanager
def playing(agent: Agent) -> Iterator[None]:
    """Make AgentError of what a user's agent raises; failures around it pass."""
    try:
        yield
    except (AgentGymError, TryOver):
        raise
    except Exception as error:
        if type(agent) is Agent:
            raise  # our bug
        places = traceback.extract_tb(error.__traceback__)
        files = [place for place in places if Path(place.filename).is_file()]  # not "<string>"
        theirs = [place for place in files if not Path(place.filename).is_relative_to(_PACKAGE)]
        place = (theirs or places)[-1]
        raise AgentError(
            f"{agent.name}.play raised {type(error).__name__}: {error} "
            f"({place.filename}, line {place.lineno})"
        ) from error


class _EpisodeStart:
    """One start of an episode."""

    def __init__(self, spec: EpisodeSpec, participants: Participants, limits: Limits) -> None:
        self._spec, self._participants, self._limits = spec, participants, limits
        self._transcript = participants.policy.transcript(spec, limits)
        self._interaction: Interaction | None = None
        """None until there is an environment."""
        self._failure: StopReason | None = None
        self._error: str | None = None
        self._clock: EpisodeClock | None = None
        self.is_final = False
        """Whether another start would fail in the same way."""

    @property
    def seconds(self) -> float:
        return self._clock.seconds if self._clock is not None else 0.0

    async def to_end(self, max_seconds: float) -> None:
        """Play until the episode has a stop reason.

        Only cancellation, AgentError and EngineDiedError escape: other episodes would fail too.
        """
        try:
            async with running_clock(max_seconds) as self._clock:
                await self._play()
        except TimeoutError:
            self._failure = StopReason.TIMEOUT
            self._error = f"not over within rollout.max_seconds={self._limits.max_seconds:g}"
            self.is_final = True
        except EnvError as error:
            self._failure, self._error = StopReason.ENV_ERROR, str(error)
            self.is_final = isinstance(error, PromptTooLongError)
        except EngineDiedError:
            raise
        except EngineError as error:
            self._failure, self._error = StopReason.ENGINE_ERROR, str(error)
        finally:
            self._transcript.close()

    async def _play(self) -> None:
        participants, agent = self._participants, self._participants.agent
        client = await participants.source.open()
        try:
            self._interaction = interaction = Interaction(
                participants.task_for_env(self._spec.task),
                client,
                self._transcript,
                limits=self._limits,
                weigh=participants.rewards.of_round,
                camera=client if await self._keeps_pictures() else None,
            )
            # TryOver: the agent did not catch it, and the interaction knows the reason.
            with playing(agent), contextlib.suppress(TryOver):
                await agent.play(interaction)
            if not interaction.has_replies:
                raise AgentError(f"{agent.name}.play ended without asking the policy for anything")
        finally:
            await client.close()

    async def _keeps_pictures(self) -> bool:
        if not self._spec.has_pictures(self._limits.picture_share):
            return False
        return (await self._participants.source.spec()).keeps_pictures

    def record(self, *, num_restarts: int) -> Episode:
        played, failure = self._interaction, self._failure
        ended = played.stop_reason if played is not None else None
        reason = failure or ended or StopReason.TERMINATED
        return Episode(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            stop_reason=reason,
            reward=None if failure or played is None else played.reward,
            success=reason is StopReason.SUCCESS,
            rounds=tuple(played.rounds) if played is not None else (),
            messages=tuple(self._transcript.messages),
            samples=() if failure else self._transcript.samples(),
            seconds=self.seconds,
            num_restarts=num_restarts,
            error=self._error,
            usage=self._transcript.usage,
            num_replies_cut=played.num_replies_cut if played is not None else 0,
        )
