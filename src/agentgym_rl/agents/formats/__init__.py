"""Action formats, by name: `agent.format` in a recipe. docs/agents.md has the table of replies."""

from __future__ import annotations

from agentgym_rl.agents.formats.base import ActionFormat, ParsedReply, ToolTemplate
from agentgym_rl.agents.formats.code import CodeFormat
from agentgym_rl.agents.formats.function_call import FunctionCallFormat
from agentgym_rl.agents.formats.plain import DirectFormat, ReActFormat
from agentgym_rl.agents.formats.tags import TagsFormat
from agentgym_rl.config.agent import check_format
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.lookup import is_own, load_class

__all__ = ["ActionFormat", "ParsedReply", "ToolTemplate", "make_format"]

_FORMATS: dict[str, type[ActionFormat]] = {
    cls.name: cls for cls in (ReActFormat, DirectFormat, TagsFormat, FunctionCallFormat, CodeFormat)
}


def make_format(name: str, spec: EnvSpec) -> ActionFormat:
    """Return the action format of that name, built-in or "module:Class", for an environment."""
    if is_own(check_format(name)):
        return load_class(name, ActionFormat, setting="agent.format")(spec)
    return _FORMATS[name](spec)
