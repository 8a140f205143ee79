"""Servers of the Model Context Protocol for tests, each a program of its own.

`REAL` is written with the package `mcp`, whose import takes seconds. `QUICK` speaks just enough of
the protocol by itself, and can hang or die where a test wants it to.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentgym_rl.envs.adapters.mcp import McpServer

REAL = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("ledger")
balance = {"a": 5, "b": 0}


@server.tool()
def send(source: str, target: str, amount: int) -> str:
    '''Send money.'''
    if amount > balance[source]:
        raise ValueError("not enough")
    balance[source] -= amount
    balance[target] += amount
    return "sent"


@server.tool()
def dump() -> dict[str, int]:
    '''Show every account.'''
    return balance


server.run()
"""

QUICK = """
import json, os, subprocess, sys, time

count = 0
for line in sys.stdin:
    message = json.loads(line)
    method, result, error = message["method"], None, None
    if "id" not in message:
        continue
    if method == "initialize":
        if "slow-start" in sys.argv:
            time.sleep(600)
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities":
                  {"tools": {}}, "serverInfo": {"name": "quick", "version": "1"}}
    elif method == "tools/list":
        number = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
        none = {"type": "object", "properties": {}}
        result = {"tools": [{"name": "count", "description": "Count up.", "inputSchema": number}]
                  + [{"name": name, "inputSchema": none} for name in ("hang", "die", "pid")]}
    elif method == "tools/call":
        name, given = message["params"]["name"], message["params"].get("arguments") or {}
        if name == "die":
            print("no more", file=sys.stderr, flush=True)
            os._exit(3)
        if name == "hang":
            time.sleep(600)
        if name == "pid":
            child = subprocess.Popen(["sleep", "600"])
            text = f"{os.getpid()} {child.pid}"
        else:
            is_number = isinstance(given.get("by"), int)
            count += given["by"] if is_number else 0
            text = str(count)
        is_error = name == "count" and not is_number
        result = {"content": [{"type": "text", "text": "not a number" if is_error else text}],
                  "isError": is_error}
    else:
        error = {"code": -32601, "message": "no such method"}
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    answer |= {"error": error} if error else {"result": result}
    print(json.dumps(answer), flush=True)
"""


def server_of(folder: Path, program: str, *words: str, **limits: float) -> McpServer:
    """Return the server that a program is, written into a folder."""
    file = folder / "server.py"
    file.write_text(program)
    return McpServer(command=(sys.executable, str(file), *words), **limits)
