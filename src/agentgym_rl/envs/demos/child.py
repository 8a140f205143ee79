"""An expert in a process of its own: processes.py talks to it.

It reads its order, one line of JSON, from standard input, and then tasks, one per line. It writes
one line for each, the order included, and ends when standard input does: with its parent, however
that ends.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Mapping
from contextlib import closing

import orjson

from agentgym_rl.envs import registry
from agentgym_rl.envs.demos.demonstration import LocalExpert, Outcome
from agentgym_rl.envs.execution.guarded import CallTimeoutError
from agentgym_rl.envs.service.protocol import decode_task
from agentgym_rl.errors import EnvError

_GRACE_S = 2.0
"""For the task under way, once nobody waits for it."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what environments print is no answer

    def tell(**what: object) -> None:
        answers.write(orjson.dumps(what) + b"\n")
        answers.flush()

    order = orjson.loads(sys.stdin.buffer.readline())
    try:
        expert = LocalExpert(
            lambda: registry.make(order["env"], order["options"]),
            max_rounds=order["max_rounds"],
            call_timeout_s=order["call_timeout_s"],
        )
    except (ValueError, EnvError) as error:
        tell(error=str(error), kind="order" if isinstance(error, ValueError) else "env")
        sys.exit(1)
    tell()
    tasks = queue.SimpleQueue[bytes]()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    with closing(expert):
        while line := tasks.get():
            tell(**_fields(expert.ask(decode_task(orjson.loads(line)))))


def _read(tasks: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    tasks.put(b"")
    threading.Event().wait(_GRACE_S)
    os._exit(0)


def _fields(outcome: Outcome) -> Mapping[str, object]:
    if outcome.error is not None:
        hangs = isinstance(outcome.error, CallTimeoutError)
        return {"hangs": str(outcome.error)} if hangs else {"broken": repr(outcome.error)}
    if (demo := outcome.demo) is None:
        return {}
    return {
        "observations": demo.observations,
        "actions": demo.actions,
        "thoughts": demo.thoughts,
    }


if __name__ == "__main__":
    main()
    os._exit(0)  # the reading thread would be in the interpreter's way
