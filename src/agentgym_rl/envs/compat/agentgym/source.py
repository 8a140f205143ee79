"""The client of AgentGym's own environment servers, and of ours through their AgentGym routes.

Those servers do not know a call that they have seen before, so nothing is sent twice once it may
have arrived: a lost answer is an error, and the episode is started anew elsewhere. Status 429,
which did nothing, is tried again within the deadline of the call. A server that cannot be reached
is waited for by `create` only (patience.py): one that comes back has lost its episodes and numbers
new ones from 0, so that a later call would reach the episode of somebody else.

What differs between the scenarios is in scenarios.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

import aiohttp

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.compat.agentgym.scenarios import Scenario, scenario_of, spec_of, tasks_of
from agentgym_rl.envs.episode import without_surrogates
from agentgym_rl.envs.service.client.connections import ERRORS, MAX_CONNECTIONS, Connections
from agentgym_rl.envs.service.client.patience import OUTAGE_S, Outages
from agentgym_rl.errors import EnvAwayError, EnvError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 5.0
_IDLE_CONNECTION_S = 2.0
"""Those servers drop a connection that was idle for 5 s, and a call sent into that is lost."""
_CREATE_PATH = "/create"
_MAX_SHOWN_CHARS = 200


class AgentGymEnvSource(EnvSource):
    """Clients of the AgentGym server at `url`. Belongs to the event loop of its first call.

    Rewards are in [0, 1]: a score out of 100 is divided by it, a negative one counts as 0, and
    each round is paid the change, so that their sum is the final score. Success is a reward of 1,
    in BabyAI any score at the end.

    A server of AgentGym has no leases: an episode whose client dies stays there until it restarts.
    """

    def __init__(
        self,
        url: str,
        *,
        env: str,
        token: str | None = None,
        timeout_s: float = 60.0,
        outage_s: float = OUTAGE_S,
        has_others: Callable[[], bool] = lambda: False,
    ) -> None:
        """Connect on first use.

        `env` is the server's scenario: textcraft, babyai, sciworld, searchqa or webarena.
        `timeout_s` is the deadline of each call; a new episode waits up to `outage_s` for a server
        that cannot be reached, and a moment while `has_others` says that there are other servers.
        """
        self._scenario = scenario_of(env)
        outages = Outages(url, outage_s, has_others=has_others)
        self._server = _Server(url, token=token, timeout_s=timeout_s, outages=outages)

    async def spec(self) -> EnvSpec:
        return await asyncio.to_thread(spec_of, self._scenario.name)  # may import a simulator

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _new_client(self) -> EnvClient:
        return AgentGymEnvClient(self._scenario, self._server)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        return await asyncio.to_thread(tasks_of, self._scenario.name, split)


class AgentGymEnvClient(EnvClient):
    """Plays one episode on an AgentGym server; made by `AgentGymEnvSource`."""

    def __init__(self, scenario: Scenario, server: _Server) -> None:
        super().__init__(scenario.name)
        self._scenario = scenario
        self._server = server
        self._id: int | None = None
        self._observation = ""
        self._earned = 0.0
        """Of the present episode so far, in [0, 1]."""

    async def _do_create(self) -> None:
        answer = await self._post("create", dict(self._scenario.create_fields))
        if isinstance(answer, Mapping):
            answer = answer.get(self._scenario.id_key)
        if type(answer) is not int:
            raise self._unexpected("create", f"no id in {_shown(answer)}")
        self._id = answer

    async def _do_reset(self, task: Task) -> str:
        scenario = self._scenario
        self._earned = 0.0
        fields = {scenario.index_key: task.index, **dict(scenario.reset_fields)}
        answer = await self._post("reset", self._with_id(fields))
        if scenario.asks_observation:
            self._refuse_reset_that_failed(answer)
            answer = await self._server.call(
                "GET", f"/observation?{scenario.id_key}={self._id}", where=self.where
            )
        self._observation = self._first_observation(answer)
        return self._observation

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        scenario = self._scenario
        answer = self._object("step", await self._post("step", self._with_id({"action": action})))
        self._observation = self._text(answer, "step", "observation")
        is_done = answer.get(scenario.done_key)
        if not isinstance(is_done, bool):
            raise self._unexpected("step", f"{scenario.done_key!r} is {_shown(is_done)}")
        before, self._earned = self._earned, self._earned_after(answer, is_done=is_done)
        enough = self._earned > 0 if scenario.succeeds_with_any_score else self._earned >= 1
        return StepResult(
            self._observation,
            reward=self._earned - before,
            terminated=is_done,
            truncated=answer.get("truncated") is True,
            success=is_done and enough,
            valid_action=not (scenario.nulls_info_of_bad_actions and answer.get("info") is None),
        )

    async def _do_observation(self) -> str:
        # Not asked of the server: some repeat the prompt there, some refuse after the end.
        return self._observation

    async def _do_available_actions(self) -> tuple[str, ...]:
        return ()

    async def _do_close(self) -> None:
        if self._id is None:  # the create failed or was cancelled
            return
        try:
            await self._server.call(
                "POST",
                "/close",
                where=self.where,
                body=self._with_id({}),
                timeout_s=_CLOSE_TIMEOUT_S,
            )
        except EnvError as error:
            logger.warning("the server may keep the episode, because close failed: %s", error)

    async def _post(self, what: str, body: Mapping[str, object]) -> object:
        """Return the answer to one of the calls that an episode consists of."""
        answer = await self._server.call("POST", f"/{what}", where=self.where, body=body)
        if isinstance(answer, Mapping) and "error" in answer:
            raise self._unexpected(what, f"the server says {_shown(answer['error'])}")
        return answer

    def _with_id(self, fields: Mapping[str, object]) -> dict[str, object]:
        return {self._scenario.id_key: self._id, **fields}

    def _refuse_reset_that_failed(self, answer: object) -> None:
        """Raise where WebArena reports any failure of a reset as an observation."""
        fields = self._object("reset", answer)
        if fields.get("observation") == "TimeoutError" and fields.get("object") == "Error":
            raise EnvTimeoutError(f"{self.where}: reset: the server could not start the task")

    def _first_observation(self, answer: object) -> str:
        if isinstance(answer, str):
            return without_surrogates(answer)
        fields = self._object("reset", answer)
        observation = self._text(fields, "reset", "observation")
        if "task_description" in fields:  # SciWorld leaves it to the client to state the task
            observation = f"{self._text(fields, 'reset', 'task_description')}\n{observation}"
        return observation

    def _earned_after(self, answer: Mapping[str, object], *, is_done: bool) -> float:
        """Return what the episode has earned with this step, in [0, 1]."""
        scenario = self._scenario
        if scenario.pays_at_end and not is_done:
            return self._earned
        value = answer.get(scenario.score_key or "reward")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise self._unexpected("step", f"the reward is {_shown(value)}")
        total = value / scenario.full_score if scenario.score_key else self._earned + value
        return min(max(total, 0.0), 1.0)

    def _object(self, what: str, answer: object) -> Mapping[str, object]:
        if not isinstance(answer, Mapping):
            raise self._unexpected(what, f"not an object: {_shown(answer)}")
        return answer

    def _text(self, answer: Mapping[str, object], what: str, key: str) -> str:
        value = answer.get(key)
        if not isinstance(value, str):
            raise self._unexpected(what, f"{key!r} is {_shown(value)}")
        return without_surrogates(value)

    def _unexpected(self, what: str, message: str) -> EnvError:
        return EnvError(f"{self.where}: {what} at {self._server.url}: {message}")


class _Server:
    """Sends calls to one server, each once: deadline, and statuses turned into errors."""

    def __init__(self, url: str, *, token: str | None, timeout_s: float, outages: Outages) -> None:
        self._connections = Connections(
            url, token=token, max_connections=MAX_CONNECTIONS, idle_s=_IDLE_CONNECTION_S
        )
        self.url = self._connections.url
        self._timeout_s = timeout_s
        self._outages = outages

    async def call(
        self,
        method: str,
        path: str,
        *,
        where: str,
        body: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
    ) -> object:
        """Return the decoded answer, or raise one of the EnvErrors."""
        timeout_s = min(timeout_s or self._timeout_s, self._timeout_s)
        what = f"{where}: {path.strip('/')} at {self.url}"
        try:
            status, content = await self._send(method, path, body, timeout_s)
        except TimeoutError:
            raise EnvTimeoutError(f"{what}: passed its deadline of {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise EnvAwayError(f"{what}: {type(error).__name__}: {error}") from error
        if status != HTTPStatus.OK:
            kind = ERRORS.get(status, EnvError)
            raise kind(f"{what}: HTTP {status}: {_shown(content.decode('utf8', 'replace'))}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise EnvError(f"{what}: not JSON: {error}") from error

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _send(
        self, method: str, path: str, body: Mapping[str, object] | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Send it and, while there is time, again where the server has no free place.

        A create is sent until the server can be reached.
        """

        async def may_create_later(error: Exception) -> bool:
            is_unreached = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
            return path == _CREATE_PATH and isinstance(error, is_unreached)

        return await self._outages.outlast(
            partial(self._send_once, method, path, body),
            is_away=may_create_later,
            is_busy=lambda answer: answer[0] == HTTPStatus.TOO_MANY_REQUESTS,
            timeout_s=timeout_s,
        )

    async def _send_once(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> tuple[int, bytes]:
        session = self._connections.session()
        url = self.url + path
        async with session.request(method, url, json=body, allow_redirects=False) as response:
            return response.status, await response.read()


def _shown(value: object) -> str:
    """Return what a server sent, short enough for a message."""
    return repr(value)[:_MAX_SHOWN_CHARS]
