"""Tools as actions: `ToolEnvironment`, whose typed, documented methods are what an agent can do.

    from agentgym_rl.envs.tools import Final, ToolEnvironment, ToolError

docs/tools.md has the whole of it; examples/tool_environment.py is one in 30 lines.
"""

from __future__ import annotations

from agentgym_rl.envs.tools.environment import CallRecord, ToolEnvironment
from agentgym_rl.envs.tools.functions import Final, ToolError
from agentgym_rl.envs.tools.text import ToolCall

__all__ = ["CallRecord", "Final", "ToolCall", "ToolEnvironment", "ToolError"]
