"""What travels between an environment server and its clients: JSON in UTF-8, errors as statuses.

    GET    /health                                              -> Health
    GET    /spec                                                -> EnvSpec
    GET    /tasks?split=train                                   -> {"tasks": [Task, ...]}
    POST   /episodes                                            -> 201 {"episode": "1.kX3..."}
    POST   /episodes/{id}/reset    {"task": Task}               -> {"observation": "..."}
    POST   /episodes/{id}/step     {"round": 0, "action": "…"}  -> StepResult
    GET    /episodes/{id}/observation                           -> {"observation": "..."}
    GET    /episodes/{id}/actions                               -> {"actions": ["...", ...]}
    GET    /episodes/{id}/details                               -> {"details": {...}}
    GET    /episodes/{id}/image                                 -> {"image": base64 of a PNG, null}
    DELETE /episodes/{id}                                       -> 204, known or not
    POST   /batch                  {"calls": [Call, ...]}       -> an Answer a line, when ready

Rounds count from 0 after each reset. Repeating the latest round with the same action gives the
same answer and does nothing; any other round than the next is refused. A failure has a status of
its own (`ErrorKind`) and the body {"error": {"type": "gone", "message": "..."}}.

A batch holds calls of many episodes, each with a number of the client's choice:

    {"call": 7, "op": "step", "episode": "1.kX3...", "round": 0, "action": "look"}
    {"call": 7, "status": 200, "body": {"observation": ...}}

The other ops are create, reset (with a task), observation, actions, details, image and close. The
answers come in the order in which they are ready; calls of one episode are done in their order,
but a close waits for none: those that are not done by then are refused.

Bodies are decoded with orjson and checked by hand, because a step is the hot path and a validating
framework costs several times the step itself. Routes and leases are in envs/server, retries in
envs/client/http.py.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.types import StepResult, Task


class ErrorKind(Enum):
    """Every way a request can fail: the `type` in the body, and the status."""

    MALFORMED = ("malformed", 400)
    UNAUTHORIZED = ("unauthorized", 401)
    FORBIDDEN = ("forbidden", 403)
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


class Op(StrEnum):
    """What can be asked of an episode."""

    CREATE = "create"
    RESET = "reset"
    STEP = "step"
    OBSERVATION = "observation"
    ACTIONS = "actions"
    DETAILS = "details"
    IMAGE = "image"
    CLOSE = "close"


_STEP = Op.STEP

SUCCESS_STATUS: Mapping[Op, int] = MappingProxyType(
    dict.fromkeys(Op, 200) | {Op.CREATE: 201, Op.CLOSE: 204}
)


class Call(NamedTuple):
    """One request to one episode; `number` is the client's, and comes back with the answer.

    A tuple, like `Answer`, because a frozen dataclass takes three times as long to make, and one
    is made for every step.
    """

    number: int
    op: Op
    episode: str = ""
    """Empty for a create."""
    task: Task | None = None
    """Of a reset."""
    round_index: int = 0
    """Of a step, as is the action."""
    action: str = ""


class Answer(NamedTuple):
    """The answer to one call."""

    number: int
    status: int
    body: Object


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a server."""

    status: str
    """ "ok"; "degraded" while calls hang or a worker is missing; "draining" before the end."""
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
    num_steps: int
    num_workers: int
    """Worker processes that run; 0 where the episodes are in the server's own process."""
    num_restarts: int
    """Worker processes that were replaced since the start."""
    uptime_s: float


Object = dict[str, Any]  # what JSON holds has no static type; `_checked` looks at the real one


def load(body: bytes) -> Object:
    """Return the JSON object that a body holds. Raises ProtocolError where it holds none."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(ErrorKind.MALFORMED, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(ErrorKind.MALFORMED, "not a JSON object")
    return value


def encode(message: object) -> bytes:
    """Return `message` (dataclasses, mappings, sequences, plain values) as JSON."""
    return orjson.dumps(message)


def encode_answer(number: int, status: int, body: object) -> bytes:
    """Return one line of the answer to a batch."""
    return orjson.dumps(
        {"call": number, "status": status, "body": body}, option=orjson.OPT_APPEND_NEWLINE
    )


def step_fields(result: StepResult) -> Object:
    """Return the body of the answer to a step; a dict, which orjson writes in half the time."""
    return {
        "observation": result.observation,
        "reward": result.reward,
        "terminated": result.terminated,
        "truncated": result.truncated,
        "success": result.success,
        "valid_action": result.valid_action,
    }


def error_body(kind: ErrorKind, message: str) -> Object:
    return {"error": {"type": kind.type, "message": message}}


def call_fields(call: Call, number: int | None = None) -> Object:
    """Return a call as it travels, under another number where one is given."""
    number = call.number if number is None else number
    if call.op is _STEP:
        return {
            "call": number,
            "op": "step",
            "episode": call.episode,
            "round": call.round_index,
            "action": call.action,
        }
    fields: Object = {"call": number, "op": call.op.value}
    if call.op is not Op.CREATE:
        fields["episode"] = call.episode
    if call.op is Op.RESET:
        fields["task"] = call.task
    return fields


def decode_call(fields: Object) -> Call:
    """Return the call that an object of a batch describes."""
    op = fields.get("op")
    if op == "step" and _is_plain_step(fields):
        return Call(
            fields["call"], _STEP, fields["episode"], None, fields["round"], fields["action"]
        )
    types = _CALLS.get(op) if isinstance(op, str) else None
    if types is None:
        known = ", ".join(_CALLS)
        raise ProtocolError(ErrorKind.WRONG_TYPE, f"call: 'op' must be one of {known}, not {op!r}")
    _checked(fields, types, types.name)
    task = decode_task(fields["task"]) if op == Op.RESET else None
    return Call(fields["call"], Op(op), fields.get("episode", ""), task)


def _is_plain_step(fields: Object) -> bool:
    """Whether this is a step as it should be; `_checked` says what is wrong with another."""
    return (
        len(fields) == 5
        and type(fields.get("call")) is int
        and type(fields.get("round")) is int
        and type(fields.get("episode")) is str
        and type(fields.get("action")) is str
    )


def decode_batch(body: bytes) -> list[Object]:
    """Return the calls of a batch, each with a number and otherwise unchecked."""
    calls = _checked(load(body), {"calls": (list,)}, "batch")["calls"]
    numbers = [call.get("call") if isinstance(call, dict) else None for call in calls]
    if not all(type(number) is int for number in numbers):
        message = "batch: every one of 'calls' must be an object with an int 'call'"
        raise ProtocolError(ErrorKind.WRONG_TYPE, message)
    if len(set(numbers)) < len(numbers):
        message = "batch: the numbers 'call' of the calls must differ"
        raise ProtocolError(ErrorKind.WRONG_TYPE, message)
    return calls


def decode_answer(line: bytes) -> Answer:
    """Return the answer that a line of a batch's answer holds."""
    fields = load(line)
    if _is_like(fields, _ANSWER_NAMES, _ANSWER_TYPES):
        return Answer(*fields.values())
    _checked(fields, _ANSWER, "answer")
    return Answer(fields["call"], fields["status"], fields["body"] or {})


def decode_step_result(fields: Object) -> StepResult:
    if _is_like(fields, _STEP_NAMES, _STEP_TYPES):
        return StepResult(*fields.values())
    _checked(fields, _STEP_RESULT, "step result")
    fields["reward"] = float(fields["reward"])
    return StepResult(**fields)


def decode_observation(fields: Object) -> str:
    return _checked(fields, {"observation": (str,)}, "answer")["observation"]


def decode_episode(fields: Object) -> str:
    """Return the id that a create answers with."""
    return _checked(fields, {"episode": (str,)}, "answer")["episode"]


def decode_actions(fields: Object) -> tuple[str, ...]:
    return _texts(_checked(fields, {"actions": (list,)}, "answer")["actions"], "actions")


def decode_details(fields: Object) -> Mapping[str, JsonValue]:
    return _checked(fields, {"details": (dict,)}, "answer")["details"]


def decode_image(fields: Object) -> bytes | None:
    image = _checked(fields, {"image": (str, type(None))}, "answer")["image"]
    return None if image is None else b64decode(image)


def decode_tasks(fields: Object) -> tuple[Task, ...]:
    tasks = _checked(fields, {"tasks": (list,)}, "answer")["tasks"]
    return tuple(decode_task(task) for task in tasks)


def decode_spec(fields: Object) -> EnvSpec:
    fields = dict(_checked({**_SPEC_DEFAULTS, **fields}, _SPEC, "spec"))
    bounds = fields["reward_range"]
    if len(bounds) != 2 or not all(type(bound) in (int, float) for bound in bounds):
        raise ProtocolError(ErrorKind.WRONG_TYPE, "spec: 'reward_range' must be two numbers")
    fields["splits"] = _texts(fields["splits"], "splits")
    fields["categories"] = _texts(fields["categories"], "categories")
    fields["action_tags"] = _texts(fields["action_tags"], "action_tags")
    fields["reward_range"] = (float(bounds[0]), float(bounds[1]))
    return EnvSpec(**fields)


def decode_health(fields: Object) -> Health:
    return Health(**_checked(fields, _HEALTH, "health"))


def decode_error(body: Object) -> str:
    """Return the message of an error answer; the body itself where it is not one of ours."""
    try:
        return str(body["error"]["message"])
    except (KeyError, TypeError):
        return str(body)[:200]


def decode_task(value: object) -> Task:
    if not isinstance(value, dict):
        raise ProtocolError(ErrorKind.WRONG_TYPE, "a task must be an object")
    if _is_like(value, _TASK_NAMES, _TASK_TYPES):
        return Task(*value.values())
    return Task(**_checked({**_TASK_DEFAULTS, **value}, _TASK, "task"))


_Types = tuple[type, ...]


class _Fields(dict[str, _Types]):
    """The names and types of an object's fields, and what the object is called in messages."""

    def __init__(self, name: str, **types: _Types) -> None:
        super().__init__(types)
        self.name = name


def _first_types(types: Mapping[str, _Types]) -> tuple[tuple[str, ...], _Types]:
    """Return the names in order, and the type that each has in what we write ourselves."""
    return tuple(types), tuple(allowed[0] for allowed in types.values())


def _is_like(fields: Object, names: tuple[str, ...], types: _Types) -> bool:
    """Whether an object has just these fields in this order, as we write it ourselves.

    A quick look before `_checked`, which allows another order and says what is wrong.
    """
    return tuple(fields) == names and tuple(map(type, fields.values())) == types


def _call(name: str, **types: _Types) -> _Fields:
    return _Fields(name, call=(int,), op=(str,), **types)


_CALLS: Mapping[str, _Fields] = MappingProxyType(
    {
        Op.CREATE: _call("create"),
        Op.RESET: _call("reset", episode=(str,), task=(dict,)),
        Op.STEP: _call("step", episode=(str,), round=(int,), action=(str,)),
        **{
            op: _call(op, episode=(str,))
            for op in (Op.OBSERVATION, Op.ACTIONS, Op.DETAILS, Op.IMAGE, Op.CLOSE)
        },
    }
)
_ANSWER: Mapping[str, _Types] = MappingProxyType(
    {"call": (int,), "status": (int,), "body": (dict, type(None))}
)
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
_ANSWER_NAMES, _ANSWER_TYPES = _first_types(_ANSWER)
_STEP_NAMES, _STEP_TYPES = _first_types(_STEP_RESULT)
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
_TASK_NAMES, _TASK_TYPES = _first_types(_TASK)
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
        "action_tags": (list,),
        "has_answer": (bool,),
    }
)
_SPEC_DEFAULTS: Mapping[str, object] = MappingProxyType({"action_tags": [], "has_answer": False})
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
        "num_steps": (int,),
        "num_workers": (int,),
        "num_restarts": (int,),
        "uptime_s": (float, int),
    }
)


def _checked(fields: Object, types: Mapping[str, _Types], what: str) -> Object:
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


def _texts(values: list[object], name: str) -> tuple[str, ...]:
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values):
        raise ProtocolError(ErrorKind.WRONG_TYPE, f"every one of {name!r} must be a string")
    return texts
