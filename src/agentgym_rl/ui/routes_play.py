"""Routes that open environments: states of stored episodes, and play."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from agentgym_rl.ui.answers import ApiError, answer
from agentgym_rl.ui.environments import Environments
from agentgym_rl.ui.models import Models
from agentgym_rl.ui.played_episodes import PlayedEpisodes, shown
from agentgym_rl.ui.reader import RunReader
from agentgym_rl.ui.replays import Replays

_REAP_S = 30.0

Name = Annotated[str, Query(max_length=1000)]
Place = Annotated[int, Query(ge=0, lt=2**31)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StateBody(_Body):
    """Which state of which stored episode."""

    run: str = Field(max_length=1000)
    episode: str = Field(max_length=1000)
    round: int = Field(ge=0, lt=2**31)


class BeginBody(_Body):
    """Which task to play."""

    env: str = Field(max_length=300)
    split: str = Field("test", max_length=300)
    task_index: int = Field(ge=-(2**63), lt=2**63)


class StepBody(_Body):
    """What a person does."""

    play: str = Field(max_length=100)
    action: str = Field(max_length=100_000)


class ModelBody(_Body):
    """Which model acts."""

    play: str = Field(max_length=100)
    model: str = Field(max_length=1000)


class TokenBody(_Body):
    """Which token of which stored sample."""

    run: str = Field(max_length=1000)
    episode: str = Field(max_length=1000)
    sample: int = Field(0, ge=0, lt=2**31)
    place: int = Field(ge=0, lt=2**31)


class CloseBody(_Body):
    """Which play is over."""

    play: str = Field(max_length=100)


class Playground:
    """The environments and models that this process holds open."""

    def __init__(self, reader: RunReader, environments: Environments) -> None:
        self.environments = environments
        self.plays, self.replays = PlayedEpisodes(environments), Replays(environments)
        self.models = Models(reader.catalog)
        self._reaper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Close idle plays from time to time."""
        self._reaper = asyncio.create_task(self._reap_forever())

    async def close(self) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
        await self.plays.close_all()
        await self.replays.close()
        self.models.thread.shutdown(wait=False, cancel_futures=True)

    async def _reap_forever(self) -> None:
        while True:
            await asyncio.sleep(_REAP_S)
            await self.plays.reap()
            await self.replays.reap()


def play_routes(reader: RunReader, playground: Playground) -> APIRouter:
    """Return the routes over a reader and what it may open."""
    router = APIRouter(prefix="/api", default_response_class=Response)
    _add_reading(router, reader, playground)
    _add_playing(router, reader, playground)
    return router


def _add_reading(router: APIRouter, reader: RunReader, playground: Playground) -> None:
    # It runs an environment, so it is no GET: only what a person does on our page leads here.
    @router.post("/state")
    async def state(body: StateBody) -> Response:
        record = await asyncio.to_thread(reader.record, body.run, body.episode)
        name, options = reader.catalog.config(body.run).replayed_env(str(record.get("env")))
        key, record = (body.run, body.episode), {**record, "env": name}
        return answer(await playground.replays.state(key, record, options, body.round))

    @router.get("/envs")
    async def envs() -> Response:
        return answer({"envs": await playground.environments.describe()})

    @router.get("/tasks")
    def tasks(env: Name, split: Name = "test", limit: Place = 50, offset: Place = 0) -> Response:
        found = playground.environments.tasks(env, split)
        page = [
            {"index": task.index, "category": task.category, "level": task.level}
            for task in found[offset : offset + min(limit, 1000)]
        ]
        return answer({"total": len(found), "tasks": page})

    @router.get("/models")
    def models() -> Response:
        return answer({"models": playground.models.names()})


def _add_playing(router: APIRouter, reader: RunReader, playground: Playground) -> None:
    plays, models = playground.plays, playground.models

    @router.post("/play")
    async def begin(body: BeginBody) -> Response:
        return answer(await plays.begin(body.env, body.split, body.task_index))

    @router.post("/play/step")
    async def step(body: StepBody) -> Response:
        return answer(await plays.step(body.play, body.action))

    @router.post("/play/model")
    async def model(body: ModelBody) -> Response:
        play = plays.find(body.play)
        async with play.lock:
            if play.client.is_over:
                raise ApiError(409, "the episode is over: begin another")
            loop = asyncio.get_running_loop()
            said = await loop.run_in_executor(models.thread, models.reply, body.model, play)
            result = await play.act(said.action, reply=said.text, complaint=said.complaint)
            state = await shown(play, result)
        return answer(state | {"reply": said.text, "action": said.action})

    @router.post("/alternatives")
    async def alternatives(body: TokenBody) -> Response:
        found = await asyncio.to_thread(reader.tokens, body.run, body.episode, body.sample)
        ids = found["ids"]
        if not isinstance(ids, list) or not 0 < body.place < len(ids):
            raise ApiError(404, f"nothing precedes token {body.place}, or there is none")
        loop = asyncio.get_running_loop()
        asked = (models.alternatives, body.run, ids, body.place)
        return answer(await loop.run_in_executor(models.thread, *asked))

    @router.post("/play/close")
    async def close(body: CloseBody) -> Response:
        await plays.close(body.play)
        return answer({"play": body.play})
