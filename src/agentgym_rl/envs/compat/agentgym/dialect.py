"""AgentGym's routes, common to all scenarios: what is asked, in which order, and how it fails.

    GET  /                                       -> "..."
    POST /create    {}                           -> {"id": 0, ...}
    POST /reset     {"id": 0, "data_idx": 7}     -> {"observation": "...", ...}
    POST /step      {"id": 0, "action": "..."}   -> {"observation", "reward", "done", ...}
    GET  /observation?id=0, /detail?id=0         -> the last answer
    POST /close     {"id": 0}                    -> true, false where the id is unknown

and what the scenario adds (profiles.py). A wrong call is answered with status 200, `error` and the
fields of an answer (`Profile.refused`), a malformed request with 422. What fails on this side has
a status of its own (`_STATUSES`), because a stock client would take anything with status 200 for a
round that earned nothing. Reasons of failures are logged, not sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentgym_rl.envs.base import JsonValue
from agentgym_rl.envs.compat.agentgym.numbered_episodes import (
    NumberedEpisode,
    NumberedEpisodes,
    RefusedError,
)
from agentgym_rl.envs.compat.agentgym.profiles import (
    NOT_STARTED,
    OVER,
    SciWorldProfile,
    View,
    profile_of,
)
from agentgym_rl.envs.compat.agentgym.task_index import TaskIndex
from agentgym_rl.envs.episode import EpisodeStateError, without_surrogates
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = "1"


def routes(service: EpisodeService) -> list[Route]:
    """Return AgentGym's routes for the environment that the service plays."""
    return _Dialect(service).routes()


class _Id(BaseModel):
    id: int = Field(ge=-(2**63), lt=2**63)


class _Create(BaseModel):
    """TextCraft's body of a create; both fields are accepted and change nothing, as there."""

    commands: str | None = None
    goal: str | None = None


class _CreateAt(_Create):
    """SearchQA's body of a create."""

    data_idx: int


class _Reset(_Id):
    data_idx: int


class _ResetOrFirst(_Reset):
    data_idx: int = 0


class _Step(_Id):
    action: str


_M = TypeVar("_M", bound=BaseModel)
_I = TypeVar("_I", bound=_Id)
_Endpoint = Callable[[Request], Awaitable[Response]]
_Problem = Mapping[str, object]


class _Dialect:
    """The handlers and what they share."""

    def __init__(self, service: EpisodeService) -> None:
        self._service = service
        self._profile = profile_of(service.spec.name)
        self._episodes = NumberedEpisodes(service)
        self._tasks = TaskIndex(
            service,
            self._profile.index_rule,
            num_levels=self._profile.num_levels,
            max_tasks=self._profile.max_tasks,
        )

    def routes(self) -> list[Route]:
        """Return the routes, the most used first: they are matched in order."""
        profile, names = self._profile, self._profile.field_names
        reset = _Reset if profile.needs_index else _ResetOrFirst
        create = _CreateAt if profile.names_first_task else _Create
        is_told = profile.needs_create_body
        posts: dict[str, _Endpoint] = {
            "/step": _posted(_Step, self._played(self._step), names),
            "/reset": _posted(reset, self._played(self._reset), names),
            "/create": _posted(create, self._create, names) if is_told else self._make,
            "/close": _posted(_Id, self._close, names),
        }
        if isinstance(profile, SciWorldProfile):
            posts["/step_visual"] = _posted(_Step, self._played(self._step_visual), names)
        for path, view in profile.post_views().items():
            posts[path] = _posted(_Id, self._played(self._view(view)), names)
        gets: dict[str, _Endpoint] = {
            "/": self._greet,
            "/observation": _queried(self._played(self._observation), names),
            "/detail": _queried(self._played(self._view(self._detail)), names),
        }
        for path, view in profile.get_views().items():
            gets[path] = _queried(self._played(self._view(view)), names)
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
        ]

    def _played(
        self, handler: Callable[[NumberedEpisode, _I], Awaitable[JsonValue]]
    ) -> Callable[[_I], Awaitable[Response]]:
        """Return `handler` with the episode of the body's id, and mistakes as answers."""

        async def answer(body: _I) -> Response:
            try:
                async with self._episodes.use(body.id) as numbered:
                    try:
                        return _json(await handler(numbered, body))
                    except EpisodeStateError as error:
                        raise RefusedError(str(error), numbered) from error
            except RefusedError as error:
                return _json(self._profile.refused(body.id, error), self._profile.refusal_status)
            except EnvError as error:
                return _failure(error, f"environment {body.id}")

        return answer

    async def _greet(self, request: Request) -> Response:
        return _json(self._profile.greeting(self._service.spec.name))

    async def _make(self, request: Request) -> Response:
        """Create where the body does not matter."""
        return await self._create(_Create())

    async def _create(self, body: _Create) -> Response:
        try:
            numbered = await self._episodes.create()
        except EnvError as error:
            return _failure(error, "create")
        if not self._profile.starts_on_create:
            return _json(self._profile.created(numbered))
        if isinstance(body, _CreateAt):
            first = _Reset(id=numbered.id, data_idx=body.data_idx)
            return await self._played(self._start)(first)
        return await self._played(self._reset)(_ResetOrFirst(id=numbered.id, data_idx=numbered.id))

    async def _close(self, body: _Id) -> Response:
        return _json(self._profile.closed(await self._episodes.close(body.id)))

    # What follows runs while no other request uses the same id.

    async def _start(self, numbered: NumberedEpisode, body: _Reset) -> JsonValue:
        await self._reset(numbered, body)
        return self._profile.created(numbered)

    async def _reset(self, numbered: NumberedEpisode, body: _Reset) -> JsonValue:
        # Without a task until it succeeds: a client that overlooks the error of a refused reset
        # must not continue with the task before it.
        numbered.task = None
        task = await self._tasks.find(body.data_idx, numbered)
        await self._episodes.start(numbered, task)
        await self._profile.begin(self._service, numbered)
        return self._profile.started(numbered)

    async def _step(self, numbered: NumberedEpisode, body: _Step) -> JsonValue:
        await self._do_round(numbered, self._profile.action_of(body.action))
        return self._profile.stepped(numbered)

    async def _step_visual(self, numbered: NumberedEpisode, body: _Step) -> JsonValue:
        assert isinstance(self._profile, SciWorldProfile), "the route is SciWorld's"
        await self._do_round(numbered, body.action.rpartition("Action:")[2].strip())
        return await self._profile.stepped_visually(self._service, numbered)

    async def _do_round(self, numbered: NumberedEpisode, action: str) -> None:
        _refuse_unless_started(numbered)
        if numbered.is_done:
            raise RefusedError(OVER, numbered)
        result = await self._episodes.step(numbered, action)
        await self._profile.settle(self._service, numbered, result)

    async def _observation(self, numbered: NumberedEpisode, body: _Id) -> JsonValue:
        self._refuse_if_shut(numbered)
        if numbered.task is not None:
            # Only asked so that the lease is renewed, and a lost episode is noticed.
            await self._service.observation(numbered.episode)
        return self._profile.observed(numbered)

    async def _detail(self, service: EpisodeService, numbered: NumberedEpisode) -> JsonValue:
        return self._profile.detailed(numbered)

    def _view(self, view: View) -> Callable[[NumberedEpisode, _Id], Awaitable[JsonValue]]:
        async def answer(numbered: NumberedEpisode, body: _Id) -> JsonValue:
            _refuse_unless_started(numbered)
            self._refuse_if_shut(numbered)
            return await view(self._service, numbered)

        return answer

    def _refuse_if_shut(self, numbered: NumberedEpisode) -> None:
        if numbered.is_done and self._profile.is_shut_after_end:
            raise RefusedError(OVER, numbered)


def _refuse_unless_started(numbered: NumberedEpisode) -> None:
    if numbered.task is None:
        raise RefusedError(NOT_STARTED, numbered)


def _posted(
    model: type[_M], handler: Callable[[_M], Awaitable[Response]], names: Mapping[str, str]
) -> _Endpoint:
    """Return the endpoint that takes the fields of `model`, by these names, from a JSON body."""
    named = _named(model, names)

    async def endpoint(request: Request) -> Response:
        raw = await request.body()
        if not raw:
            return _unprocessable([_problem("missing", ["body"], "Field required")])
        try:
            value: object = json.loads(raw)
        except (ValueError, RecursionError):
            return _unprocessable([_problem("json_invalid", ["body"], "JSON decode error")])
        try:
            body = named.model_validate(_without_surrogates(value))
        except ValidationError as error:
            return _unprocessable(_problems("body", error))
        return await handler(body)

    return endpoint


def _queried(handler: Callable[[_Id], Awaitable[Response]], names: Mapping[str, str]) -> _Endpoint:
    """Return the endpoint that takes the id from the query."""
    named = _named(_Id, names)

    async def endpoint(request: Request) -> Response:
        try:
            query = named.model_validate(dict(request.query_params))
        except ValidationError as error:
            return _unprocessable(_problems("query", error))
        return await handler(query)

    return endpoint


def _without_surrogates(value: object) -> object:
    """Return an object with its texts such that UTF-8 can carry them; other values as they are."""
    if not isinstance(value, dict):
        return value
    return {
        key: without_surrogates(text) if isinstance(text, str) else text
        for key, text in value.items()
    }


def _named(model: type[_M], names: Mapping[str, str]) -> type[_M]:
    """Return the model with the scenario's names of fields in place of ours."""
    theirs = {ours: name for name, ours in names.items()}
    config = ConfigDict(alias_generator=lambda field: theirs.get(field, field))
    return type(model.__name__, (model,), {"model_config": config}) if names else model


def _problem(kind: str, loc: Sequence[int | str], message: str, input_: object = None) -> _Problem:
    return {"type": kind, "loc": loc, "msg": message, "input": input_}


def _problems(place: str, error: ValidationError) -> list[_Problem]:
    """Return what pydantic found, in FastAPI's words."""
    found = error.errors(include_url=False, include_context=False)
    return [_problem(one["type"], [place, *one["loc"]], one["msg"], one["input"]) for one in found]


def _unprocessable(problems: Sequence[_Problem]) -> Response:
    """Answer a malformed request with the body that FastAPI gives it."""
    try:
        body = json.dumps({"detail": problems}, allow_nan=False)
    except ValueError:  # NaN, which Python reads but JSON does not have
        body = json.dumps({"detail": [{**problem, "input": None} for problem in problems]})
    return Response(body, 422, media_type="application/json")


_STATUSES: Mapping[type[EnvError], tuple[int, str]] = {
    EnvBusyError: (429, "all places are taken: try again later"),
    EnvGoneError: (410, "its episode is gone: create another"),
    EnvTimeoutError: (504, "it passed its deadline: create another"),
    EnvError: (500, "it failed: create another"),
}


def _failure(error: EnvError, what: str) -> Response:
    """Answer for a failure of this side."""
    kind = next(kind for kind in type(error).__mro__ if kind in _STATUSES)
    status, words = _STATUSES[kind]
    logger.warning("AgentGym dialect, %s: HTTP %d: %s", what, status, error)
    answer = _json({"error": f"{what}: {words}"}, status)
    if kind is EnvBusyError:
        answer.headers["retry-after"] = _RETRY_AFTER_S
    return answer


def _json(value: JsonValue, status: int = 200) -> Response:
    body = orjson.dumps(value, default=_plain)
    return Response(body, status, media_type="application/json")


def _plain(value: object) -> object:
    """Return as a dict what is a mapping of another kind, which details may hold."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"not a JSON value: {type(value).__name__}")
