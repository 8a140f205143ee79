"""Action formats: `agent.format` in a recipe. Their table is in config/agent.py."""

from __future__ import annotations

from agentgym_rl.agents.formats.base import ActionFormat, ParsedReply, ToolTemplate
from agentgym_rl.config.agent import FORMATS, check_format
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.lookup import load_class

__all__ = ["ActionFormat", "ParsedReply", "ToolTemplate", "make_format"]


def make_format(name: str, spec: EnvSpec) -> ActionFormat:
    """Return the action format of that name, built-in or "module:Class", for an environment."""
    place = FORMATS.get(check_format(name), name)
    return load_class(place, ActionFormat, setting="agent.format")(spec)
