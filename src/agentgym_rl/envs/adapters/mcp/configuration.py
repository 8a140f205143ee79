"""`mcp.json`: the servers of a working folder, in the form that other programs read too.

    {"mcpServers": {"shop": {"command": "python", "args": ["shop_server.py"],
                             "agentgym": {"tasks": "shop.jsonl", "score": "shop_rewards:score"}}}}

A run folder can only name a server; what is started stands in this file, which is the user's own.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentgym_rl.envs.adapters.mcp.session import McpServer
from agentgym_rl.errors import did_you_mean

FILES = ("mcp.json", ".mcp.json")


class Settings(BaseModel):
    """What we need to know of a server beyond how it starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: str = ""
    """A file with a task per line, as JSON: goal, and if wanted split, category, expert, data."""
    score: str = ""
    """The reward function, "module:function"."""
    final_call: str = ""
    """A call whose answer shows the reward function the final state."""
    instructions: str = ""
    max_rounds: int = Field(default=10, ge=1)
    start_timeout_s: float = Field(default=30.0, gt=0)
    call_timeout_s: float = Field(default=30.0, gt=0)


class TaskLine(BaseModel):
    """One line of a file with tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goal: str = Field(min_length=1)
    split: str = "train"
    category: str = "all"
    expert: tuple[str, ...] = ()
    data: dict[str, JsonValue] = {}


class _Server(BaseModel):
    model_config = ConfigDict(extra="ignore")  # other programs have settings of their own

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    agentgym: Settings = Settings()


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    mcpServers: dict[str, _Server]  # its name everywhere


def read_entry(name: str, folder: Path | None = None) -> tuple[McpServer, Settings]:
    """Return how a server is reached, and our settings for it. Raises ValueError."""
    folder = folder or Path.cwd()
    file = next((folder / each for each in FILES if (folder / each).is_file()), None)
    if file is None:
        raise ValueError(
            f"mcp/{name} needs a file mcp.json in {folder}, which says how the server starts: "
            '{"mcpServers": {"' + name + '": {"command": "...", "args": []}}}'
        )
    try:
        servers = _File.model_validate(json.loads(file.read_text(encoding="utf-8"))).mcpServers
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{file}: {place}: {first['msg']}") from None
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if name not in servers:
        raise ValueError(
            f"{file} has no server {name!r}{did_you_mean(name, servers)}; it has "
            f"{', '.join(servers) or 'none'}"
        )
    found = servers[name]
    return (
        McpServer(
            command=(found.command, *found.args) if found.command else (),
            env=tuple(found.env.items()),
            cwd=found.cwd,
            url=found.url,
            start_timeout_s=found.agentgym.start_timeout_s,
            call_timeout_s=found.agentgym.call_timeout_s,
        ),
        found.agentgym,
    )
