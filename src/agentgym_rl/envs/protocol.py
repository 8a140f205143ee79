"""What travels between an environment server and its clients: JSON in UTF-8, errors as statuses.

    GET    /health                                              -> Health
    GET    /spec                                                -> EnvSpec
    GET    /tasks?split=train                                   -> {"tasks": [Task, ...]}
    POST   /episodes                                            -> 201 {"episode": "kX3..."}
    POST   /episodes/{id}/reset    {"task": Task}               -> {"observation": "..."}
    POST   /episodes/{id}/step     {"round": 0, "action": "…"}  -> StepResult
    GET    /episodes/{id}/observation                           -> {"observation": "..."}
    GET    /episodes/{id}/actions                               -> {"actions": ["...", ...]}
    DELETE /episodes/{id}                                       -> 204, known or not

Rounds count from 0 after each reset. Repeating the latest round with the same action gives the
same answer and does nothing; any other round than the next is refused. A failure has a status of
its own (`ErrorKind`) and the body {"error": {"type": "gone", "message": "..."}}.

Bodies are decoded with orjson and checked by hand, because a step is the hot path and a validating
framework costs several times the step itself. Routes and leases are in envs/server, retries in
envs/client/http.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import orjson

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.types import StepResult, Task


class ErrorKind(Enum):
    """Every way a request can fail: the `type` in the body, and the status."""

    MALFORMED = ("malformed", 400)
    UNAUTHORIZED = ("unauthorized", 401)
    UNKNOWN_ROUTE = ("unknown_route", 404)
    WRONG_METHOD = ("wrong_method", 405)
    WRONG_STATE = ("wrong_state", 409)
    WRONG_ROUND = ("wrong_round", 409)
    GONE = ("gone", 410)
    TOO_LARGE = ("too_large", 413)
    WRONG_TYPE = ("wrong_type", 422)
    BUSY = ("busy", 429)
    ENV_FAILED = ("env_failed", 500)
    INTERNAL = ("internal", 500)
    TIMEOUT = ("timeout", 504)

    def __init__(self, type_: str, status: int) -> None:
        self.type = type_
        self.status = status


class ProtocolError(Exception):
    """A message that breaks the protocol: a request to refuse, or an answer not to be trusted."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a server."""

    status: str
    """ "ok", or "degraded" while calls hang."""
    env: str
    num_episodes: int
    """Episodes that have a place now."""
    num_abandoned: int
    """Calls that passed their deadline and have not returned; each still holds its place."""
    capacity: int
    num_opened: int
    """Episodes opened since the start; the next two count their ends."""
    num_failed: int
    num_reaped: int
    uptime_s: float


@dataclass(frozen=True, slots=True)
class StepRequest:
    """The body of a step."""

    round_index: int
    action: str


def encode(message: object) -> bytes:
    """Return `message` (dataclasses, mappings, sequences, plain values) as JSON."""
    return orjson.dumps(message)


def encode_step_request(round_index: int, action: str) -> bytes:
    return orjson.dumps({"round": round_index, "action": action})


def encode_error(kind: ErrorKind, message: str) -> bytes:
    return orjson.dumps({"error": {"type": kind.type, "message": message}})


def decode_step_request(body: bytes) -> StepRequest:
    fields = _checked(_object(body), _STEP_REQUEST, "step")
    return StepRequest(fields["round"], fields["action"])


def decode_reset_request(body: bytes) -> Task:
    fields = _checked(_object(body), {"task": (dict,)}, "reset")
    return _task(fields["task"])


def decode_empty_request(body: bytes) -> None:
    """Refuse a body that is neither absent nor an empty object."""
    if body:
        _checked(_object(body), {}, "create")


def decode_step_result(body: bytes) -> StepResult:
    fields = _checked(_object(body), _STEP_RESULT, "step result")
    fields["reward"] = float(fields["reward"])
    return StepResult(**fields)


def decode_text(body: bytes, key: str) -> str:
    """Return the string under `key` of an answer that holds only it."""
    return _checked(_object(body), {key: (str,)}, "answer")[key]


def decode_actions(body: bytes) -> tuple[str, ...]:
    return _texts(_checked(_object(body), {"actions": (list,)}, "answer")["actions"], "actions")


def decode_tasks(body: bytes) -> tuple[Task, ...]:
    tasks = _checked(_object(body), {"tasks": (list,)}, "answer")["tasks"]
    return tuple(_task(task) for task in tasks)


def decode_spec(body: bytes) -> EnvSpec:
    fields = _checked(_object(body), _SPEC, "spec")
    bounds = fields["reward_range"]
    if len(bounds) != 2 or not all(type(bound) in (int, float) for bound in bounds):
        raise ProtocolError(ErrorKind.WRONG_TYPE, "spec: 'reward_range' must be two numbers")
    fields["splits"] = _texts(fields["splits"], "splits")
    fields["categories"] = _texts(fields["categories"], "categories")
    fields["reward_range"] = (float(bounds[0]), float(bounds[1]))
    return EnvSpec(**fields)


def decode_health(body: bytes) -> Health:
    return Health(**_checked(_object(body), _HEALTH, "health"))


def decode_error(body: bytes) -> str:
    """Return the message of an error answer; the body itself where it is not one of ours."""
    try:
        return str(_object(body)["error"]["message"])
    except (ProtocolError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


_Types = tuple[type, ...]
_Object = dict[str, Any]  # what JSON holds has no static type; `_checked` looks at the real one

_STEP_REQUEST: Mapping[str, _Types] = MappingProxyType({"round": (int,), "action": (str,)})
_STEP_RESULT: Mapping[str, _Types] = MappingProxyType(
    {
        "observation": (str,),
        "reward": (float, int),
        "terminated": (bool,),
        "truncated": (bool,),
        "success": (bool,),
        "valid_action": (bool,),
    }
)
_TASK: Mapping[str, _Types] = MappingProxyType(
    {
        "env": (str,),
        "split": (str,),
        "index": (int,),
        "category": (str,),
        "level": (str,),
        "seed": (int,),
    }
)
_TASK_DEFAULTS: Mapping[str, object] = MappingProxyType({"category": "", "level": "", "seed": 0})
_SPEC: Mapping[str, _Types] = MappingProxyType(
    {
        "name": (str,),
        "summary": (str,),
        "instructions": (str,),
        "example_action": (str,),
        "splits": (list,),
        "categories": (list,),
        "max_rounds": (int,),
        "reward_range": (list,),
        "success": (str,),
    }
)
_HEALTH: Mapping[str, _Types] = MappingProxyType(
    {
        "status": (str,),
        "env": (str,),
        "num_episodes": (int,),
        "num_abandoned": (int,),
        "capacity": (int,),
        "num_opened": (int,),
        "num_failed": (int,),
        "num_reaped": (int,),
        "uptime_s": (float, int),
    }
)


def _object(body: bytes) -> _Object:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(ErrorKind.MALFORMED, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(ErrorKind.MALFORMED, "not a JSON object")
    return value


def _checked(fields: _Object, types: Mapping[str, _Types], what: str) -> _Object:
    """Return `fields` when it has exactly the names of `types` with values of these types.

    Types are compared exactly: JSON has no subclasses, and a bool must not pass for an int.
    """
    for name, allowed in types.items():
        if name not in fields:
            raise ProtocolError(ErrorKind.WRONG_TYPE, f"{what}: {name!r} is missing")
        if type(fields[name]) not in allowed:
            raise ProtocolError(
                ErrorKind.WRONG_TYPE,
                f"{what}: {name!r} must be {allowed[0].__name__}, "
                f"not {type(fields[name]).__name__}",
            )
    if len(fields) != len(types):
        unknown = ", ".join(repr(name) for name in fields if name not in types)
        raise ProtocolError(ErrorKind.WRONG_TYPE, f"{what}: unknown fields: {unknown}")
    return fields


def _task(value: object) -> Task:
    if not isinstance(value, dict):
        raise ProtocolError(ErrorKind.WRONG_TYPE, "a task must be an object")
    return Task(**_checked({**_TASK_DEFAULTS, **value}, _TASK, "task"))


def _texts(values: list[object], name: str) -> tuple[str, ...]:
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values):
        raise ProtocolError(ErrorKind.WRONG_TYPE, f"every one of {name!r} must be a string")
    return texts
