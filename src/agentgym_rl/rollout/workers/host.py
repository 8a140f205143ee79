"""A rollout worker in its process: plays the episodes that it is told to, all at once.

It has environments, agents and prompts of its own, made from the recipe as the controller makes
its own; replies come from the controller (engine.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import torch

from agentgym_rl.agents.agent import make_agent
from agentgym_rl.engines.pool.messages import Answer
from agentgym_rl.engines.pool.process import be_host
from agentgym_rl.envs.access.places import NamedPlace
from agentgym_rl.envs.access.pool import EnvPool
from agentgym_rl.envs.access.sources import make_source
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.errors import AgentGymError, RunError
from agentgym_rl.garbage import collect_garbage, collect_rarely
from agentgym_rl.rollout.episode import Participants, TokenPolicy, play_episode
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.workers.engine import FarEngine, Replies
from agentgym_rl.rollout.workers.messages import (
    Failed,
    FindServer,
    GiveUp,
    Ping,
    Play,
    Played,
    Reply,
    Server,
    Waits,
    WorkerEnv,
    WorkerPlan,
    WorkerValue,
    packed,
    plain_error,
)

logger = logging.getLogger(__name__)

_LEAVE_S = 3.0
"""For environments to end when the controller has."""
_COLLECT_EVERY = 256
"""Episodes after which the garbage is collected that simulators leave."""
_MAX_TOGETHER = 16
"""Messages in one piece."""
_COUNTS = ("cluster/episodes_lost", "cluster/episodes_server_")
"""How the names of metrics begin that only the worker counts."""


def run_worker(connection: Connection, plan: WorkerPlan) -> None:
    """Play episodes until the line ends, and end the process."""
    os._exit(host_worker(connection, plan))


def host_worker(connection: Connection, plan: WorkerPlan) -> int:
    """Play episodes until the line ends; return the process's status after a failure."""
    return be_host(
        connection, plan, partial(WorkerHost, plan), what="the rollout worker", leave_s=_LEAVE_S
    )


class WorkerHost:
    """Belongs to one event loop, on which it is made and handed messages."""

    def __init__(self, plan: WorkerPlan, send: Callable[[Sequence[object]], None]) -> None:
        torch.set_num_threads(1)
        # What a user's environment leaves on the event loop ends no worker, as it ends no run.
        asyncio.get_running_loop().set_exception_handler(None)
        self._plan, self._send_all = plan, send
        self._outbox: list[object] = []
        self._replies = Replies(self._send)
        self._participants: list[Participants] = []
        self._plays: dict[int, asyncio.Task[None]] = {}
        self._num_played = 0
        self._numbers = itertools.count(1)
        self._servers: dict[int, asyncio.Future[Server]] = {}
        self._opening = asyncio.create_task(self._open())

    def handle(self, messages: Sequence[object]) -> None:
        """Begin what is asked; the answers come through `send`."""
        for message in messages:
            match message:
                case Reply() | Waits():
                    self._replies.handle(message)
                case Play():
                    task = asyncio.create_task(self._play(message))
                    self._plays[message.number] = task
                case GiveUp():
                    if (play := self._plays.get(message.play)) is not None:
                        play.cancel()
                case Ping():
                    self._answer(message.number, None)
                case Server():
                    waiting = self._servers.pop(message.number, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)

    async def close(self) -> None:
        """Give back the environments: some have processes of their own."""
        for play in list(self._plays.values()):
            play.cancel()
        await asyncio.gather(*self._plays.values(), return_exceptions=True)
        for participants in self._participants:
            with contextlib.suppress(Exception):  # the process ends at any rate
                await participants.source.aclose()

    async def _open(self) -> None:
        """Make what episodes are played with, and say so."""
        try:
            rewards = EpisodeRewards.of_section(
                self._plan.reward, timeout_s=self._plan.reward_timeout_s
            )
            for number, env in enumerate(self._plan.envs):
                self._participants.append(await self._open_env(number, env, rewards))
        except Exception:
            logger.exception("the rollout worker cannot begin")
            os._exit(1)  # whose log the controller reports
        collect_rarely()
        self._answer(0, None)

    async def _open_env(self, number: int, env: WorkerEnv, rewards: EpisodeRewards) -> Participants:
        source = await self._source(number, env).__aenter__()
        agent = make_agent(env.agent, await source.spec()).for_model(env.renderer)
        policy = TokenPolicy(FarEngine(self._replies, 0, None), env.renderer)
        return Participants(source, agent, policy, rewards, env.label)

    def _source(self, number: int, env: WorkerEnv) -> EnvSource:
        if not env.num_servers:
            return make_source(env.env)
        places = [
            NamedPlace(
                f"environment server {place} of {env.env.name}",
                partial(self._find_server, number, place),
                timeout_s=env.env.timeout_s,
            )
            for place in range(env.num_servers)
        ]
        return EnvPool(places, timeout_s=env.env.timeout_s)

    async def _find_server(self, env: int, place: int) -> tuple[str, str]:
        """Return address and token of a server, which the controller says when there is one."""
        number = next(self._numbers)
        waiting = self._servers[number] = asyncio.get_running_loop().create_future()
        self._send(FindServer(number, env, place))
        try:
            server = await waiting
        finally:
            self._servers.pop(number, None)
        return server.url, server.token

    async def _play(self, order: Play) -> None:
        participants = self._participants[order.env]
        engine = FarEngine(self._replies, order.number, order.max_context)
        value: WorkerValue
        try:
            episode = await play_episode(order.spec, participants.with_engine(engine), order.limits)
            # The controller has the task already.
            told = packed(replace(episode, task=replace(episode.task, payload={})))
            value = Played(told, _take_counts(participants.source))
        except AgentGymError as error:
            value = Failed(plain_error(error))
        except Exception as error:  # nobody else would hear of it
            where = traceback.format_exc()
            logger.exception("an episode of %s failed", order.spec.task.id)
            value = Failed(RunError(f"a rollout worker failed: {error!r}\n{where}"))
        finally:
            del self._plays[order.number]
        self._answer(order.number, value)
        self._num_played += 1
        if self._num_played % _COLLECT_EVERY == 0:
            collect_garbage()

    def _answer(self, number: int, value: WorkerValue) -> None:
        self._send(Answer(number, value))

    def _send(self, message: object) -> None:
        """Send what becomes ready in this pass of the event loop in a few pieces.

        In one piece, engines would wait until all episodes have had their turn.
        """
        self._outbox.append(message)
        if len(self._outbox) == 1:
            asyncio.get_running_loop().call_soon(self._flush)
        elif len(self._outbox) == _MAX_TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if self._outbox:
            ready, self._outbox = self._outbox, list[object]()
            self._send_all(ready)


def _take_counts(source: EnvSource) -> dict[str, float]:
    return {
        name: number
        for name, number in source.take_metrics().items()
        if number and name.startswith(_COUNTS)
    }
