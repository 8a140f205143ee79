"""The OpenAPI description of our own routes, at /openapi.json.

Written by hand beside envs/service/protocol.py: the requests are checked by hand there, for speed.
"""

from __future__ import annotations

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.service.protocol import MAX_KEY_CHARS, ErrorKind, Op
from agentgym_rl.frozen import MAX_NAME_CHARS, MAX_NUMBERS

_Schema = dict[str, JsonValue]

_TEXT: _Schema = {"type": "string"}
_INDEX: _Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}


def describe(spec: EnvSpec) -> _Schema:
    """Return the description of a server of this environment."""
    episode = "/episodes/{episode}"
    return {
        "openapi": "3.1.0",
        "info": {"title": f"AgentGym-RL: {spec.name}", "description": spec.summary, "version": "1"},
        "paths": {
            "/health": {"get": _operation("State of the server", "Health")},
            "/spec": {"get": _operation("What is known before an episode", "Spec")},
            "/tasks": {
                "get": _operation(
                    "Tasks of a split", "Tasks", query={"split": {"enum": list(spec.splits)}}
                )
            },
            "/metrics": {"get": _text_operation("Counts in Prometheus' text format")},
            "/episodes": {
                "post": _operation(
                    "Take a place",
                    "Created",
                    status=201,
                    body="CreateRequest",
                    needs_body=False,
                    busy=True,
                )
            },
            f"{episode}/reset": {
                "post": _operation("Start a task", "Observation", body="ResetRequest", path=True)
            },
            f"{episode}/step": {
                "post": _operation("Do one action", "StepResult", body="StepRequest", path=True)
            },
            f"{episode}/observation": {
                "get": _operation("The latest observation", "Observation", path=True)
            },
            f"{episode}/actions": {
                "get": _operation("Actions that make sense now", "Actions", path=True)
            },
            f"{episode}/details": {
                "get": _operation("Facts beyond the observation", "Details", path=True)
            },
            f"{episode}/image": {"get": _operation("A picture", "Image", path=True)},
            episode: {"delete": _closing()},
            "/batch": {"post": _batch()},
        },
        "components": {"schemas": _schemas(spec)},
    }


def _operation(
    summary: str,
    answer: str,
    *,
    status: int = 200,
    body: str = "",
    needs_body: bool = True,
    path: bool = False,
    query: _Schema | None = None,
    busy: bool = False,
) -> _Schema:
    """Return one method of a route; `path` says that it is of an episode."""
    parameters: list[JsonValue] = [_EPISODE] if path else []
    for name, schema in (query or {}).items():
        parameters.append({"name": name, "in": "query", "required": True, "schema": schema})
    kinds = {ErrorKind.UNAUTHORIZED, ErrorKind.TOO_LARGE, ErrorKind.UNKNOWN_ROUTE}
    if body:
        kinds |= {ErrorKind.MALFORMED, ErrorKind.WRONG_TYPE}
    if path:
        kinds |= {ErrorKind.WRONG_STATE, ErrorKind.GONE, ErrorKind.ENV_FAILED, ErrorKind.TIMEOUT}
    if query:
        kinds.add(ErrorKind.WRONG_TYPE)
    if busy:
        kinds |= {ErrorKind.BUSY, ErrorKind.ENV_FAILED, ErrorKind.TIMEOUT}
    operation: _Schema = {
        "summary": summary,
        "responses": {str(status): _content("application/json", _ref(answer)), **_errors(kinds)},
    }
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = {
            "required": needs_body, **_content("application/json", _ref(body))
        }  # fmt: skip
    return operation


def _text_operation(summary: str) -> _Schema:
    answer = _content("text/plain", _TEXT)
    return {"summary": summary, "responses": {"200": answer, **_errors({ErrorKind.UNAUTHORIZED})}}


def _closing() -> _Schema:
    return {
        "summary": "Give the place back, known or not",
        "parameters": [_EPISODE],
        "responses": {
            "204": {"description": "done"},
            **_errors({ErrorKind.UNAUTHORIZED, ErrorKind.UNKNOWN_ROUTE}),
        },
    }


def _batch() -> _Schema:
    kinds = {ErrorKind.UNAUTHORIZED, ErrorKind.TOO_LARGE, ErrorKind.MALFORMED, ErrorKind.WRONG_TYPE}
    return {
        "summary": "Many calls at once; one answer a line, each when it is ready",
        "requestBody": {"required": True, **_content("application/json", _ref("Batch"))},
        "responses": {"200": _content("application/x-ndjson", _TEXT), **_errors(kinds)},
    }


def _errors(kinds: set[ErrorKind]) -> _Schema:
    statuses = sorted({kind.status for kind in kinds})
    return {str(status): _content("application/json", _ref("Error")) for status in statuses}


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


_EPISODE: _Schema = {"name": "episode", "in": "path", "required": True, "schema": _TEXT}


_KEY: _Schema = {"type": "string", "maxLength": MAX_KEY_CHARS}
_FLAG: _Schema = {"type": "boolean"}
_NUMBER: _Schema = {"type": "number"}
_NUMBERS: _Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": MAX_NAME_CHARS},
    "additionalProperties": _NUMBER,
    "maxProperties": MAX_NUMBERS,
}
_COUNTS = (
    *("num_episodes", "num_abandoned", "capacity", "num_opened", "num_failed", "num_reaped"),
    *("num_steps", "num_workers", "num_silent", "num_restarts"),
)


def _schemas(spec: EnvSpec) -> _Schema:
    return {
        **_requests(spec),
        "Tasks": _object({"tasks": {"type": "array", "items": _ref("Task")}}),
        "StepResult": _object(
            {
                "observation": _TEXT,
                "reward": _NUMBER,
                "terminated": _FLAG,
                "truncated": _FLAG,
                "success": _FLAG,
                "valid_action": _FLAG,
                "metrics": _NUMBERS,
                "reward_parts": _NUMBERS,
            },
            optional=("metrics", "reward_parts"),
        ),
        "Observation": _object({"observation": _TEXT}),
        "Actions": _object({"actions": {"type": "array", "items": _TEXT}}),
        "Details": _object({"details": {"type": "object"}}),
        "Image": _object({"image": {"type": ["string", "null"]}}),
        "Created": _object({"episode": _TEXT}),
        "Health": _object(
            {
                "status": {"enum": ["ok", "degraded", "draining"]},
                "env": {"const": spec.name},
                **{name: {"type": "integer"} for name in _COUNTS},
                "uptime_s": _NUMBER,
            }
        ),
        "Spec": {"type": "object"},
        "Error": _object({"error": _object({"type": _TEXT, "message": _TEXT})}),
    }


def _requests(spec: EnvSpec) -> _Schema:
    """Return the schemas of what clients send."""
    call: _Schema = {
        "type": "object",
        "properties": {
            "call": {"type": "integer"},
            "op": {"enum": [op.value for op in Op]},
            "episode": _TEXT,
            "task": _ref("Task"),
            "round": _INDEX,
            "action": _TEXT,
            "key": _KEY,
        },
        "required": ["call", "op"],
    }
    task = _object(
        {
            "env": {"const": spec.name},
            "split": {"enum": list(spec.splits)},
            "index": _INDEX,
            "category": _TEXT,
            "level": _TEXT,
            "seed": _INDEX,
            "payload": {"type": "object"},
        },
        optional=("category", "level", "seed", "payload"),
    )
    return {
        "Task": task,
        "CreateRequest": _object({"key": _KEY}, optional=("key",)),
        "ResetRequest": _object({"task": _ref("Task")}),
        "StepRequest": _object({"round": _INDEX, "action": _TEXT}),
        "Batch": _object({"calls": {"type": "array", "items": call}}),
    }
