"""The Python tool: runs code in the sandbox and returns what it printed.

Every call is a new process, which ends with it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache

from agentgym_rl.errors import EnvError
from agentgym_rl.sandbox.calls import Sandbox
from agentgym_rl.sandbox.messages import CallLimits

MAX_CODE_CHARS = 16_000

_sandbox = Sandbox(
    "agentgym_rl.sandbox.program:prepare",
    has_packages=False,
    # More than processors, because code that sleeps needs none.
    max_calls=max(8, 2 * (os.cpu_count() or 1)),
)


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one call may use. It cannot write files at all."""

    wall_s: float = 5.0
    cpu_s: int = 4
    memory_mb: int = 256
    output_chars: int = 2_000
    """Output beyond it is cut; a program that prints much more is stopped."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The result of a call. Example: SandboxResult("42\\n", "")"""

    output: str
    """What the code printed, cut to the limit."""
    problem: str
    """Why it was stopped, in words; empty if it ended by itself."""


@cache
def why_unavailable() -> str:
    """Return why no code can be run safely on this machine; "" if it can.

    Finds out by running some code, once per process.
    """
    if sys.platform != "linux":
        return f"the sandbox needs Linux, not {sys.platform}"
    try:
        output = run_code("print(6 * 7)", SandboxLimits(wall_s=20.0, cpu_s=20)).output
    except EnvError as error:
        return str(error)
    return "" if output == "42\n" else f"a trial of the sandbox printed {output!r}"


def run_code(code: str, limits: SandboxLimits) -> SandboxResult:
    """Run code (any text) and wait for its end.

    Raises EnvError if the sandbox itself fails; the code is then not run, or not to its end.
    """
    if len(code) > MAX_CODE_CHARS:
        return SandboxResult("", f"the code is longer than {MAX_CODE_CHARS} characters")
    inner = CallLimits(
        wall_s=limits.wall_s,
        cpu_s=limits.cpu_s,
        memory_bytes=limits.memory_mb * 1024 * 1024,
        reply_bytes=8 * limits.output_chars + 1000,
    )
    reply = _sandbox.call(code.encode("utf-8", "replace"), inner)
    text, problem = reply.data.decode("utf-8", "replace"), reply.problem
    if len(text) > limits.output_chars:
        text, problem = text[: limits.output_chars], problem or "it printed too much"
    return SandboxResult(text, problem)
