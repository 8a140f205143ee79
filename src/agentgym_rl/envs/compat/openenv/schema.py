"""What the OpenEnv routes publish about themselves: schemas, and the list of paths."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_rl.envs.compat.openenv.protocol import ACTION_FIELD, TEXT_FIELD

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
