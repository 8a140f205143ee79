"""A server that belongs to the process that started it: server_process.py talks to it.

It reads its order, one line of JSON, from standard input, writes one line, {"url": ...} or
{"error": ..., "kind": ...}, and ends when standard input does: with its parent, however that ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TextIO

from agentgym_rl.envs.access.serve import Address, EnvServer
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.errors import EnvError


def main() -> None:
    order = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what environments print must not fill a pipe that nobody reads
    try:
        server = EnvServer(
            order["env"],
            Address(order["host"], port=0, token=order["token"]),
            options=order["options"],
            num_workers=order["num_workers"],
            limits=ServerLimits(capacity=order["capacity"], call_timeout_s=order["call_timeout_s"]),
            on_ready=lambda url: _tell(answers, url=url),
        )
        threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
        server.run()
    except (ValueError, EnvError) as error:
        kind = "order" if isinstance(error, ValueError) else "server"
        _tell(answers, error=str(error), kind=kind)
        sys.exit(1)


def _tell(answers: TextIO, **what: str) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _end_with_parent(server: EnvServer) -> None:
    sys.stdin.read()
    server.should_exit = True


if __name__ == "__main__":
    main()
