"""Servers of the Model Context Protocol as environments: their tools are the actions.

    mcp/NAME                   a server that `mcp.json` in the working folder names
    Files = mcp_class(...)     in your own module, with tasks and a reward function

docs/tools.md has both.
"""

from __future__ import annotations

from agentgym_rl.envs.adapters.mcp.environment import (
    McpEnvironment,
    McpEpisode,
    McpTask,
    configured_class,
    mcp_class,
)
from agentgym_rl.envs.adapters.mcp.session import McpServer

__all__ = ["McpEnvironment", "McpEpisode", "McpServer", "McpTask", "configured_class", "mcp_class"]
