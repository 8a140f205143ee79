"""Scores episodes with the package webarena-verified. Run as a program, by the Python that has it.

It imports nothing of this project. One JSON object per line comes in: first the addresses, then
episodes ({"task", "answer", "entries"}); one goes out for each ({"score", "error"}).
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from typing import Any

_PLAIN_ANSWER = {"task_type": "RETRIEVE", "status": "UNKNOWN_ERROR", "retrieved_data": None}
"""Well-formed and wrong."""


def main() -> None:
    # Only here: nobody but this program has the package.
    from webarena_verified.api import WebArenaVerified  # type: ignore[import-not-found]
    from webarena_verified.types.config import (  # type: ignore[import-not-found]
        WebArenaVerifiedConfig,
    )

    logging.disable(logging.CRITICAL)
    out = sys.stdout
    addresses = json.loads(sys.stdin.readline())
    environments = {f"__{name.upper()}__": {"urls": [url]} for name, url in addresses.items()}
    with contextlib.redirect_stdout(sys.stderr):
        arena = WebArenaVerified(config=WebArenaVerifiedConfig(environments=environments))
    answer(out, {"ready": True})
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            said = score(arena, json.loads(line))
        answer(out, said)


def score(arena: Any, episode: dict[str, Any]) -> dict[str, object]:  # of an unknown package
    """Return the package's score.

    Where it fails on what the agent said or sent, that is 0, as the package has it. Where it fails
    on a plain answer and the first request, which is ours, something else is wrong: an error.
    """
    result = evaluate(arena, episode, episode["answer"])
    if str(result.status) != "error":
        return {"score": float(result.score), "error": ""}
    first = {**episode, "entries": episode["entries"][:1]}
    plain = evaluate(arena, first, _PLAIN_ANSWER)
    error = str(plain.error_msg or "unknown") if str(plain.status) == "error" else ""
    return {"score": 0.0, "error": error}


def evaluate(arena: Any, episode: dict[str, Any], said: object) -> Any:  # of an unknown package
    return arena.evaluate_task(
        task_id=episode["task"], agent_response=said, network_trace=episode["entries"]
    )


def answer(out: Any, said: dict[str, object]) -> None:  # a text stream
    out.write(json.dumps(said) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
