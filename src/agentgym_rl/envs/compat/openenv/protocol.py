"""The wire protocol of OpenEnv (package `openenv`, 0.3 to 0.10) as both of our halves speak it.

One WebSocket `/ws` is one session: JSON text frames, each answered by one frame, in order.

    {"type": "reset", "data": {"seed": 3}}          -> {"type": "observation", "data": Outcome}
    {"type": "step", "data": {"action": "look"}}    -> {"type": "observation", "data": Outcome}
    {"type": "state"}                               -> {"type": "state", "data": {...}}
    {"type": "close"}                               -> the server ends the session and the socket
    anything that fails                             -> {"type": "error", "data": Failure}

    Outcome  {"observation": {"text": "...", "metadata": {...}}, "reward": 0.0, "done": false}
    Failure  {"message": "...", "code": "EXECUTION_ERROR"}

A refused session is an error frame that nobody asked for, and then the end of the socket. HTTP has
/health, /metadata, /schema and, from 0.10 on, tasks: /list_environments, /{env}/splits,
/{env}/tasks, /{env}/num_tasks, /{env}/task and /{env}/task_range, where an index is a position in
its split.

What our server adds, in places where other peers look past it: the flags of `StepResult` in the
`metadata` of an outcome, the `kind` of a failure, `agentgym` (the `EnvSpec`) in /metadata, `task`
(the `Task`) in the tasks of the task API and in a reset, the message type "actions".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from agentgym_rl.envs.service.protocol import ErrorKind

ACTION_FIELD = "action"
"""The one field of our actions."""
TEXT_FIELD = "text"
"""The field of our observations that holds the text."""
SPEC_FIELD = "agentgym"
"""Where /metadata of our servers has the `EnvSpec`."""


class ErrorCode(StrEnum):
    """The codes that OpenEnv's peers know."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    FACTORY_ERROR = "FACTORY_ERROR"
    SESSION_ERROR = "SESSION_ERROR"


CODES: Mapping[ErrorKind, ErrorCode] = {
    ErrorKind.MALFORMED: ErrorCode.INVALID_JSON,
    ErrorKind.UNKNOWN_ROUTE: ErrorCode.UNKNOWN_TYPE,
    ErrorKind.WRONG_TYPE: ErrorCode.VALIDATION_ERROR,
    ErrorKind.TOO_LARGE: ErrorCode.VALIDATION_ERROR,
    ErrorKind.BUSY: ErrorCode.CAPACITY_REACHED,
    ErrorKind.GONE: ErrorCode.SESSION_ERROR,
}
"""Our kinds of failure in these codes; every other kind is an EXECUTION_ERROR."""


_API_VERSION = "1.0.0"
"""The version of OpenEnv's HTTP interface."""


def openapi(methods: Mapping[str, str]) -> dict[str, object]:
    """Return the OpenAPI document of paths and their method; the schemas are in /schema."""
    answer = {"200": {"description": "See /schema and the documentation."}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "AgentGym-RL environment in OpenEnv's protocol", "version": _API_VERSION},
        "paths": {path: {method: {"responses": answer}} for path, method in methods.items()},
    }


_METADATA = {"type": "object", "additionalProperties": True, "default": {}}
SCHEMA: Mapping[str, object] = {
    "action": {
        "title": "TextAction",
        "type": "object",
        "properties": {
            ACTION_FIELD: {"type": "string", "description": "The action, in words."},
            "metadata": _METADATA,
        },
        "required": [ACTION_FIELD],
        "additionalProperties": False,
    },
    "observation": {
        "title": "TextObservation",
        "type": "object",
        "properties": {
            TEXT_FIELD: {"type": "string", "description": "What the agent sees."},
            "done": {"type": "boolean", "default": False},
            "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "metadata": _METADATA,
        },
        "required": [TEXT_FIELD],
    },
    "state": {
        "title": "EpisodeState",
        "type": "object",
        "properties": {
            "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "step_count": {"type": "integer", "minimum": 0, "default": 0},
            "is_over": {"type": "boolean"},
            "task": {"type": "object"},
            "details": {"type": "object"},
        },
        "additionalProperties": True,
    },
}
