"""States of stored episodes: the environment plays the stored actions again.

Which episodes may be played again is in replay_rules.py. Environments are deterministic, so the
state after N rounds is the state that the agent was in. A replay is kept between requests and
continues from where it is, so stepping through an episode costs one step per round; what was shown
once is remembered, so stepping back costs nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.envs.client import EnvClient
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import AgentGymError
from agentgym_rl.runs.episodes import try_of
from agentgym_rl.types import Task
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.environments import Environments, state_of
from agentgym_rl.ui.replay_rules import check_actions

_MAX_REPLAYS = 4
_MAX_REMEMBERED = 256
"""States of one replay."""
LEASE_S = 300.0

Round = Mapping[str, Any]  # Any: a row of Parquet


class Replay:
    """One stored episode, played again as far as was asked for. Calls must not overlap."""

    def __init__(self, source: LocalEnvSource, task: Task, rounds: Sequence[Round]) -> None:
        self._source, self._task, self._rounds = source, task, rounds
        self._client: EnvClient | None = None
        self._try_index, self._played = -1, 0
        self._states: dict[int, dict[str, object]] = {}
        self._problem: str | None = None
        self.lock = asyncio.Lock()
        self.used_at = time.monotonic()

    async def state(self, num_rounds: int) -> dict[str, object]:
        """Return the state after this many rounds, counted over all tries."""
        if num_rounds > len(self._rounds):
            raise ApiError(404, f"the episode has {len(self._rounds)} rounds, not {num_rounds}")
        self.used_at = time.monotonic()
        if num_rounds not in self._states:
            client = await self._play_to(num_rounds)
            found = await state_of(client)
            while len(self._states) >= _MAX_REMEMBERED:
                self._states.pop(next(iter(self._states)))
            self._states[num_rounds] = found | {"round": num_rounds, "problem": self._problem}
        return self._states[num_rounds]

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        await self._source.aclose()

    async def _play_to(self, num_rounds: int) -> EnvClient:
        try_index = try_of(self._rounds[num_rounds - 1]) if num_rounds else 0
        if self._client is None or try_index != self._try_index or num_rounds < self._played:
            if self._client is None:
                self._client = await self._source.open()
            await self._client.reset(self._task)
            self._problem = None
            self._try_index = try_index
            self._played = sum(try_of(item) < try_index for item in self._rounds)
        while self._played < num_rounds:
            await self._step(self._client, self._rounds[self._played])
            self._played += 1
        return self._client

    async def _step(self, client: EnvClient, stored: Round) -> None:
        """Do one stored action; a reply without one never reached the environment."""
        action = stored["action"]
        if action is None or client.is_over:
            return
        result = await client.step(action)
        if result.observation != stored["observation"] and self._problem is None:
            self._problem = (
                f"from round {self._played + 1} on the replay is not what was stored: the "
                "environment, its data or its options have changed, or it is not deterministic"
            )


class Replays:
    """The replays that are open; the one used longest ago makes room."""

    def __init__(self, environments: Environments) -> None:
        self._environments = environments
        self._open: OrderedDict[tuple[str, str], Replay] = OrderedDict()
        self._lock = asyncio.Lock()

    async def state(
        self,
        key: tuple[str, str],
        record: Mapping[str, Any],
        options: Mapping[str, object],
        num_rounds: int,
    ) -> dict[str, object]:
        """Return the state of an episode after this many rounds; `key` names it."""
        async with self._lock:
            if key not in self._open:
                self._open[key] = await self._begin(record, options)
            self._open.move_to_end(key)
            replay = self._open[key]
            while len(self._open) > _MAX_REPLAYS:
                await self._open.popitem(last=False)[1].close()
        async with replay.lock:
            try:
                return await replay.state(num_rounds)
            except (AgentGymError, ValueError) as error:
                self._open.pop(key, None)
                await replay.close()
                raise ApiError(409, f"the episode cannot be played again: {error}") from error

    async def reap(self) -> None:
        """Close what was not used for a while."""
        now = time.monotonic()
        for key, replay in list(self._open.items()):
            if now - replay.used_at > LEASE_S and not replay.lock.locked():
                del self._open[key]
                await replay.close()

    async def close(self) -> None:
        while self._open:
            await self._open.popitem()[1].close()

    async def _begin(self, record: Mapping[str, Any], options: Mapping[str, object]) -> Replay:
        try:
            task = Task(
                str(record["env"]),
                record["split"] or "",
                int(record["task_index"]),
                category=record.get("category") or "",
                level=record.get("level") or "",
                seed=record.get("task_seed") or 0,
                payload=json.loads(record.get("payload") or "{}"),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ApiError(409, f"the episode does not name its task: {error}") from None
        rounds = record.get("rounds") or []
        check_actions(rounds)
        source = await asyncio.to_thread(self._environments.replay_source, task.env, options)
        return Replay(source, task, rounds)
