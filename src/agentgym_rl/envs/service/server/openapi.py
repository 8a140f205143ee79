"""The OpenAPI description of our own routes, at /openapi.json.

The schemas follow the dataclasses that travel, as the checks in envs/service/protocol.py do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.service.protocol import MAX_KEY_CHARS, ErrorKind, Health, Op, json_types
from agentgym_rl.frozen import MAX_NAME_CHARS, MAX_NUMBERS
from agentgym_rl.types import StepResult, Task

_Schema = dict[str, JsonValue]

_TYPES: Mapping[type, _Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
}
_TEXT = _TYPES[str]
_TEXTS: _Schema = {"type": "array", "items": _TEXT}
_INDEX: _Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_KEY: _Schema = {"type": "string", "maxLength": MAX_KEY_CHARS}
_NUMBERS: _Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME_CHARS},
    "additionalProperties": _TYPES[float],
    "maxProperties": MAX_NUMBERS,
}
_EPISODES = "/episodes/{episode}"
_EPISODE: _Schema = {"name": "episode", "in": "path", "required": True, "schema": _TEXT}

_ANY_ERRORS = frozenset({ErrorKind.UNAUTHORIZED, ErrorKind.TOO_LARGE, ErrorKind.UNKNOWN_ROUTE})
_BODY_ERRORS = frozenset({ErrorKind.MALFORMED, ErrorKind.WRONG_TYPE})
_CALL_ERRORS = frozenset({ErrorKind.ENV_FAILED, ErrorKind.TIMEOUT})
_EPISODE_ERRORS = _CALL_ERRORS | {ErrorKind.WRONG_STATE, ErrorKind.GONE}


def describe(spec: EnvSpec) -> _Schema:
    """Return the description of a server of this environment."""
    split: _Schema = {"name": "split", "in": "query", "required": True, "schema": _split(spec)}
    tasks = _operation("Tasks of a split", "Tasks", {ErrorKind.WRONG_TYPE}, parameters=[split])
    create = _operation(
        "Take a place", "Created", _BODY_ERRORS | _CALL_ERRORS | {ErrorKind.BUSY}, status=201
    )
    batch = _operation(
        "Many calls at once; one answer per line, each when it is ready", _TEXT, _BODY_ERRORS,
        media_type="application/x-ndjson",
    )  # fmt: skip
    paths: _Schema = {
        "/health": {"get": _operation("State of the server", "Health")},
        "/spec": {"get": _operation("What is known before an episode", "Spec")},
        "/tasks": {"get": tasks},
        "/metrics": {
            "get": _operation("Counts in Prometheus' text format", _TEXT, media_type="text/plain")
        },
        "/episodes": {"post": create | _body("CreateRequest", is_required=False)},
        "/batch": {"post": batch | _body("Batch")},
    }
    of_episodes: _Schema = {
        "/reset": {"post": _of_episode("Start a task", "Observation", body="ResetRequest")},
        "/step": {"post": _of_episode("Do one action", "StepResult", body="StepRequest")},
        "/observation": {"get": _of_episode("The latest observation", "Observation")},
        "/actions": {"get": _of_episode("Actions that make sense now", "Actions")},
        "/details": {"get": _of_episode("Facts beyond the observation", "Details")},
        "/image": {"get": _of_episode("A picture", "Image")},
        "": {
            "delete": _operation(
                "Give the place back, known or not", None, status=204, parameters=[_EPISODE]
            )
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"AgentGym-RL: {spec.name}", "description": spec.summary, "version": "1"},
        "paths": {**paths, **{f"{_EPISODES}{path}": of_episodes[path] for path in of_episodes}},
        "components": {"schemas": {**_requests(spec), **_answers(spec)}},
    }


def _of_episode(summary: str, answer: str, *, body: str = "") -> _Schema:
    errors = _EPISODE_ERRORS | _BODY_ERRORS if body else _EPISODE_ERRORS
    operation = _operation(summary, answer, errors, parameters=[_EPISODE])
    return operation | _body(body) if body else operation


def _operation(
    summary: str,
    answer: str | _Schema | None,
    errors: frozenset[ErrorKind] | set[ErrorKind] = frozenset(),
    *,
    status: int = 200,
    media_type: str = "application/json",
    parameters: Sequence[_Schema] = (),
) -> _Schema:
    """Return one method of a route; the answer is the name of a schema, a schema or nothing."""
    schema = _ref(answer) if isinstance(answer, str) else answer
    good: _Schema = {"description": "done"} if schema is None else _content(media_type, schema)
    bad = _content("application/json", _ref("Error"))
    statuses = sorted({kind.status for kind in _ANY_ERRORS | errors})
    return {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {str(status): good, **{str(status): bad for status in statuses}},
    }


def _body(name: str, *, is_required: bool = True) -> _Schema:
    return {
        "requestBody": {"required": is_required, **_content("application/json", _ref(name))},
    }


def _content(media_type: str, schema: _Schema) -> _Schema:
    return {"description": "", "content": {media_type: {"schema": schema}}}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: _Schema, *, optional: tuple[str, ...] = ()) -> _Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _properties(cls: type) -> _Schema:
    return {name: _TYPES[types[0]] for name, types in json_types(cls).items()}


def _split(spec: EnvSpec) -> _Schema:
    return {"enum": list(spec.splits)}


def _answers(spec: EnvSpec) -> _Schema:
    """Return the schemas of what the server sends."""
    of_health: _Schema = {
        "status": {"enum": ["ok", "degraded", "draining"]}, "env": {"const": spec.name}
    }  # fmt: skip
    of_step: _Schema = {"metrics": _NUMBERS, "reward_parts": _NUMBERS}
    return {
        "Tasks": _object({"tasks": {"type": "array", "items": _ref("Task")}}),
        "StepResult": _object(_properties(StepResult) | of_step, optional=tuple(of_step)),
        "Observation": _object({"observation": _TEXT}),
        "Actions": _object({"actions": _TEXTS}),
        "Details": _object({"details": _TYPES[dict]}),
        "Image": _object({"image": {"type": ["string", "null"]}}),
        "Created": _object({"episode": _TEXT}),
        "Health": _object(_properties(Health) | of_health),
        "Spec": _TYPES[dict],
        "Error": _object({"error": _object({"type": _TEXT, "message": _TEXT})}),
    }


def _requests(spec: EnvSpec) -> _Schema:
    """Return the schemas of what clients send."""
    of_call: _Schema = {
        "call": _TYPES[int],
        "op": {"enum": [op.value for op in Op]},
        "episode": _TEXT,
        "task": _ref("Task"),
        "round": _INDEX,
        "action": _TEXT,
        "key": _KEY,
    }
    call: _Schema = {"type": "object", "properties": of_call, "required": ["call", "op"]}
    of_task: _Schema = {
        "env": {"const": spec.name}, "split": _split(spec),
        "index": _INDEX, "seed": _INDEX,
    }  # fmt: skip
    return {
        "Task": _object(
            _properties(Task) | of_task, optional=("category", "level", "seed", "payload")
        ),
        "CreateRequest": _object({"key": _KEY}, optional=("key",)),
        "ResetRequest": _object({"task": _ref("Task")}),
        "StepRequest": _object({"round": _INDEX, "action": _TEXT}),
        "Batch": _object({"calls": {"type": "array", "items": call}}),
    }
