"""What travels between an environment server and its clients: JSON in UTF-8, errors as statuses.

    GET    /health                                              -> Health
    GET    /spec                                                -> EnvSpec
    GET    /tasks?split=train                                   -> {"tasks": [Task, ...]}
    POST   /episodes               {"key": "…"}                 -> 201 {"episode": "1.kX3..."}
    POST   /episodes/{id}/reset    {"task": Task}               -> {"observation": "..."}
    POST   /episodes/{id}/step     {"round": 0, "action": "…"}  -> StepResult
    GET    /episodes/{id}/observation                           -> {"observation": "..."}
    GET    /episodes/{id}/actions                               -> {"actions": ["...", ...]}
    GET    /episodes/{id}/details                               -> {"details": {...}}
    GET    /episodes/{id}/image                                 -> {"image": base64 or null}
    DELETE /episodes/{id}                                       -> 204, known or not
    POST   /batch                  {"calls": [Call, ...]}       -> one Answer per line, when ready

Rounds count from 0 after each reset. Repeating the latest round with the same action gives the
same answer and does nothing; any other round than the next is refused. A create with the key of an
episode that is open answers with that episode; without a key it always opens one. A failure has a
status of its own (`ErrorKind`) and the body {"error": {"type": "gone", "message": "..."}}.

A batch holds calls of many episodes, each with a number of the client's choice:

    {"call": 7, "op": "step", "episode": "1.kX3...", "round": 0, "action": "look"}
    {"call": 7, "status": 200, "body": {"observation": ...}}

Three fields are left out where they are empty: `metrics` and `reward_parts` of a StepResult (names
to finite numbers), and `payload` of a Task (any JSON object, at most 1 MiB). `tools` of the spec
are JSON schemas of functions, as chat templates take them.

The other ops are create, reset (with a task), observation, actions, details, image and close. The
answers come in the order in which they are ready; calls of one episode are done in their order,
but a close waits for none: those that are not done by then are refused.

Bodies are decoded with orjson and checked by hand (serving/bodies.py). Routes and leases are in
server/, retries in client/http.py.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

import orjson

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.episode import checked_parts
from agentgym_rl.frozen import named_numbers
from agentgym_rl.serving.bodies import (
    ErrorKind,
    Fields,
    FieldTypes,
    Object,
    ProtocolError,
    checked,
    first_types,
    is_like,
    load,
    texts_of,
)
from agentgym_rl.types import StepResult, Task


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

MAX_KEY_CHARS = 64
"""Of a create's key; servers remember many."""

MAX_PAYLOAD_BYTES = 2**20
"""Of a task, as JSON: it travels with every reset."""

SUCCESS_STATUS: Mapping[Op, int] = dict.fromkeys(Op, 200) | {Op.CREATE: 201, Op.CLOSE: 204}

_JSON_TYPES: Mapping[str, FieldTypes] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "tuple": (list,),
    "Mapping": (dict,),
}
"""Annotation, without its parameters -> types of a decoded value; first the one that we write."""


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
    key: str = ""
    """Of a create: made by the client, so that it can be repeated. Empty for none."""


class Answer(NamedTuple):
    """The answer to one call."""

    number: int
    status: int
    body: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a server counts."""

    num_episodes: int = 0
    """Episodes that have a place now."""
    num_abandoned: int = 0
    """Calls that passed their deadline and have not returned; each still holds its place."""
    num_opened: int = 0
    """Episodes opened since the start; the next two count how they ended."""
    num_failed: int = 0
    num_reaped: int = 0
    num_steps: int = 0
    num_workers: int = 0
    """Worker processes that take episodes; 0 where the server's own process holds them."""
    num_silent: int = 0
    """Worker processes that have missed their heartbeats and get no new episodes."""
    num_restarts: int = 0
    """Worker processes that were replaced since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Counts):
    """The state of a server."""

    status: str
    """ "ok"; "degraded" while calls hang or a worker is missing; "draining" before the end."""
    env: str
    capacity: int
    uptime_s: float


def json_types(cls: type) -> dict[str, FieldTypes]:
    """Return the fields of a dataclass, in order, with the types that they have in JSON."""
    return {each.name: _JSON_TYPES[str(each.type).partition("[")[0]] for each in fields(cls)}


def wrong_type(message: str) -> ProtocolError:
    """Return the error of a value that is not what the protocol asks for."""
    return ProtocolError(ErrorKind.WRONG_TYPE, message)


def encode_answer(number: int, status: int, body: object) -> bytes:
    """Return one line of the answer to a batch."""
    return orjson.dumps(
        {"call": number, "status": status, "body": body}, option=orjson.OPT_APPEND_NEWLINE
    )


def step_fields(result: StepResult) -> Object:
    """Return the body of the answer to a step; a dict, which orjson writes in half the time."""
    fields: Object = {
        "observation": result.observation,
        "reward": result.reward,
        "terminated": result.terminated,
        "truncated": result.truncated,
        "success": result.success,
        "valid_action": result.valid_action,
    }
    if result.metrics:
        fields["metrics"] = result.metrics
    if result.reward_parts:
        fields["reward_parts"] = result.reward_parts
    return fields


def task_fields(task: Task) -> Object:
    fields: Object = {
        "env": task.env,
        "split": task.split,
        "index": task.index,
        "category": task.category,
        "level": task.level,
        "seed": task.seed,
    }
    if task.payload:
        fields["payload"] = task.payload
    return fields


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
    elif call.key:
        fields["key"] = call.key
    if call.op is Op.RESET:
        assert call.task is not None, "a reset has its task"
        fields["task"] = task_fields(call.task)
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
        raise wrong_type(f"call: 'op' must be one of {known}, not {op!r}")
    if op != Op.CREATE:
        checked(fields, types, types.name)
        task = decode_task(fields["task"]) if op == Op.RESET else None
        return Call(fields["call"], Op(op), fields["episode"], task)
    key = checked({"key": "", **fields}, types, types.name)["key"]
    if len(key) > MAX_KEY_CHARS:
        raise wrong_type(
            f"create: 'key' must have at most {MAX_KEY_CHARS} characters, not {len(key)}"
        )
    return Call(fields["call"], Op.CREATE, key=key)


def _is_plain_step(fields: Object) -> bool:
    """Whether this is a step as it should be; `checked` says what is wrong with another."""
    return (
        len(fields) == 5
        and type(fields.get("call")) is int
        and type(fields.get("round")) is int
        and type(fields.get("episode")) is str
        and type(fields.get("action")) is str
    )


def decode_batch(body: bytes) -> list[Object]:
    """Return the calls of a batch, each with a number and otherwise unchecked."""
    calls = checked(load(body), {"calls": (list,)}, "batch")["calls"]
    numbers = [call.get("call") if isinstance(call, dict) else None for call in calls]
    if not all(type(number) is int for number in numbers):
        raise wrong_type("batch: every one of 'calls' must be an object with an int 'call'")
    if len(set(numbers)) < len(numbers):
        raise wrong_type("batch: the numbers 'call' of the calls must differ")
    return calls


def decode_answer(line: bytes) -> Answer:
    """Return the answer that a line of a batch's answer holds."""
    fields = load(line)
    if is_like(fields, _ANSWER_NAMES, _ANSWER_TYPES):
        return Answer(*fields.values())
    checked(fields, _ANSWER, "answer")
    return Answer(fields["call"], fields["status"], fields["body"] or {})


def decode_step_result(fields: Object) -> StepResult:
    if is_like(fields, _STEP_NAMES, _STEP_TYPES):
        return StepResult(*fields.values())
    fields = checked({**_STEP_DEFAULTS, **fields}, _STEP_RESULT, "step result")
    reward = float(fields["reward"])
    try:
        metrics = named_numbers(fields["metrics"], "metrics")
        parts = checked_parts(fields["reward_parts"], reward)
    except (TypeError, ValueError) as error:
        raise wrong_type(f"step result: {error}") from error
    return StepResult(**fields | {"reward": reward, "metrics": metrics, "reward_parts": parts})


def decode_observation(fields: Object) -> str:
    return checked(fields, {"observation": (str,)}, "answer")["observation"]


def decode_episode(fields: Object) -> str:
    """Return the id that a create answers with."""
    return checked(fields, {"episode": (str,)}, "answer")["episode"]


def decode_actions(fields: Object) -> tuple[str, ...]:
    return texts_of(checked(fields, {"actions": (list,)}, "answer")["actions"], "actions")


def decode_details(fields: Object) -> Mapping[str, JsonValue]:
    return checked(fields, {"details": (dict,)}, "answer")["details"]


def decode_image(fields: Object) -> bytes | None:
    image = checked(fields, {"image": (str, type(None))}, "answer")["image"]
    return None if image is None else b64decode(image)


def decode_tasks(fields: Object) -> tuple[Task, ...]:
    tasks = checked(fields, {"tasks": (list,)}, "answer")["tasks"]
    return tuple(decode_task(task) for task in tasks)


def decode_spec(fields: Object) -> EnvSpec:
    fields = dict(checked({**_SPEC_DEFAULTS, **fields}, _SPEC, "spec"))
    bounds = fields["reward_range"]
    if len(bounds) != 2 or not all(type(bound) in (int, float) for bound in bounds):
        raise wrong_type("spec: 'reward_range' must be two numbers")
    for name in ("splits", "categories", "action_tags"):
        fields[name] = texts_of(fields[name], name)
    if not all(isinstance(tool, dict) for tool in fields["tools"]):
        raise wrong_type("spec: 'tools' must be a list of objects")
    fields["reward_range"] = (float(bounds[0]), float(bounds[1]))
    try:
        return EnvSpec(**fields | {"tools": tuple(fields["tools"])})
    except (TypeError, ValueError) as error:
        raise wrong_type(f"spec: {error}") from error


def decode_health(fields: Object) -> Health:
    return Health(**checked(fields, _HEALTH, "health"))


def decode_error(body: Object) -> str:
    """Return the message of an error answer; the body itself where it is not one of ours."""
    try:
        return str(body["error"]["message"])
    except (KeyError, TypeError):
        return str(body)[:200]


def decode_task(value: object) -> Task:
    if not isinstance(value, dict):
        raise wrong_type("a task must be an object")
    if is_like(value, _TASK_NAMES, _TASK_TYPES):
        return Task(*value.values())
    fields = checked({**_TASK_DEFAULTS, **value}, _TASK, "task")
    if len(orjson.dumps(fields["payload"])) > MAX_PAYLOAD_BYTES:
        raise wrong_type(f"task: 'payload' is larger than {MAX_PAYLOAD_BYTES} bytes")
    try:
        return Task(**fields)
    except (TypeError, ValueError) as error:
        raise wrong_type(f"task: {error}") from error


def _call(name: str, **types: FieldTypes) -> Fields:
    return Fields(name, call=(int,), op=(str,), **types)


def _without(types: Mapping[str, FieldTypes], names: Container[str]) -> dict[str, FieldTypes]:
    return {name: allowed for name, allowed in types.items() if name not in names}


_CALLS: Mapping[str, Fields] = {
    **{op: _call(op, episode=(str,)) for op in Op},
    Op.CREATE: _call("create", key=(str,)),
    Op.RESET: _call("reset", episode=(str,), task=(dict,)),
    Op.STEP: _call("step", episode=(str,), round=(int,), action=(str,)),
}
_ANSWER: Mapping[str, FieldTypes] = {"call": (int,), "status": (int,), "body": (dict, type(None))}
_ANSWER_NAMES, _ANSWER_TYPES = first_types(_ANSWER)

_STEP_RESULT = json_types(StepResult)
_STEP_DEFAULTS: Mapping[str, object] = {"metrics": {}, "reward_parts": {}}
_STEP_NAMES, _STEP_TYPES = first_types(_without(_STEP_RESULT, _STEP_DEFAULTS))

_TASK = json_types(Task)
_TASK_DEFAULTS: Mapping[str, object] = {"category": "", "level": "", "seed": 0, "payload": {}}
_TASK_NAMES, _TASK_TYPES = first_types(_without(_TASK, ("payload",)))

_SPEC = json_types(EnvSpec)
_SPEC_DEFAULTS: Mapping[str, object] = {
    "action_tags": [], "tools": [], "has_answer": False, "replay_is_safe": False,
    "keeps_pictures": False,
}  # fmt: skip
_HEALTH = json_types(Health)
