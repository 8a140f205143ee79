"""Episodes that somebody plays in the browser, by hand or with a model; idle ones are closed."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvClient
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.tools.described import briefing
from agentgym_rl.errors import AgentGymError
from agentgym_rl.types import StepResult
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.environments import Environments, state_of, tasks_of
from agentgym_rl.ui.goals import goal_of

MAX_EPISODES = 16
LEASE_S = 900.0
MAX_ROUNDS = 1000


@dataclass(slots=True)
class PlayedRound:
    """What was done, and what the environment answered. `reply` is a model's own text."""

    action: str | None
    observation: str
    reply: str | None = None


@dataclass(slots=True)
class PlayedEpisode:
    """One episode that is being played."""

    name: str
    source: LocalEnvSource
    client: EnvClient
    spec: EnvSpec
    first_observation: str
    rounds: list[PlayedRound] = field(default_factory=list)
    score: float = 0.0
    used_at: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def act(self, action: str | None, *, reply: str | None, complaint: str) -> StepResult:
        """Do an action; without one the answer is the complaint, as in a rollout."""
        if self.client.is_over:
            raise ApiError(409, "the episode is over: begin another")
        if len(self.rounds) >= MAX_ROUNDS:
            raise ApiError(409, f"an episode in the browser has at most {MAX_ROUNDS} rounds")
        if action is None:
            result = StepResult(complaint, valid_action=False)
        else:
            result = await self.client.step(action)
        self.rounds.append(PlayedRound(action, result.observation, reply))
        self.score += result.reward
        return result

    async def close(self) -> None:
        await self.client.close()
        await self.source.aclose()


class PlayedEpisodes:
    """The episodes that are open."""

    def __init__(self, environments: Environments) -> None:
        self._environments = environments
        self._open: dict[str, PlayedEpisode] = {}

    async def begin(self, env: str, split: str, task_index: int) -> dict[str, object]:
        """Begin an episode; return its first state and its name."""
        await self.reap()
        if len(self._open) >= MAX_EPISODES:
            raise ApiError(
                409,
                f"{MAX_EPISODES} episodes are being played already: close a page that plays one, "
                f"or wait; one without an action for {int(LEASE_S // 60)} minutes is closed",
            )
        source = await asyncio.to_thread(self._environments.source, env)
        spec = await source.spec()
        try:
            tasks = await asyncio.to_thread(tasks_of, env, split)
            task = next((task for task in tasks if task.index == task_index), None)
            if task is None:
                raise ApiError(404, f"{env} has no task {task_index} in split {split!r}")
            client = await source.open()
            try:
                first = await client.reset(task)
            except (AgentGymError, ValueError):
                await client.close()
                raise
        except (AgentGymError, ValueError) as error:
            await source.aclose()
            raise ApiError(409, f"{env} cannot be played: {error}") from error
        play = PlayedEpisode(secrets.token_urlsafe(16), source, client, spec, first)
        self._open[play.name] = play
        told = {"instructions": briefing(spec), "goal": goal_of(first), "success": spec.success}
        return await shown(play, None) | {"told": told | {"max_rounds": spec.max_rounds}}

    def find(self, name: str) -> PlayedEpisode:
        """Return an open episode; it is used now."""
        play = self._open.get(name)
        if play is None:
            minutes = int(LEASE_S // 60)
            raise ApiError(
                404, f"the episode is closed: {minutes} minutes without an action close one"
            )
        play.used_at = time.monotonic()
        return play

    async def step(self, name: str, action: str) -> dict[str, object]:
        """Do an action of the user's."""
        play = self.find(name)
        async with play.lock:
            try:
                result = await play.act(action, reply=None, complaint="")
                return await shown(play, result) | {"action": action}
            except AgentGymError as error:
                await self.close(name)
                raise ApiError(
                    409, f"the environment failed, so the episode ends: {error}"
                ) from error

    async def close(self, name: str) -> None:
        """End an episode. Safe to repeat."""
        play = self._open.pop(name, None)
        if play is not None:
            await play.close()

    async def reap(self) -> None:
        """Close episodes that nobody used for a while."""
        now = time.monotonic()
        for name, play in list(self._open.items()):
            if now - play.used_at > LEASE_S and not play.lock.locked():
                await self.close(name)

    async def close_all(self) -> None:
        for name in list(self._open):
            await self.close(name)


async def shown(play: PlayedEpisode, result: StepResult | None) -> dict[str, object]:
    """Return the present state of an episode, after a result or at its beginning."""
    state = await state_of(play.client)
    if play.rounds:  # a reply without an action was answered by us, not by the environment
        state["observation"] = play.rounds[-1].observation
    return state | {
        "play": play.name,
        "available_actions": list(await play.client.available_actions()),
        "reward": result.reward if result is not None else 0.0,
        "score": play.score,
        "done": play.client.is_over,
        "success": result.success if result is not None else False,
        "valid_action": result.valid_action if result is not None else True,
        "round": len(play.rounds),
    }
