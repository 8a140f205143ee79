"""Episodes played once more in fresh interpreters, each with another order of sets.

Python orders sets of texts by a number drawn for each process, and objects by where they lie in
memory. An environment that lets such an order show is the same within a process and another in the
next, which only a second process finds out.

Run by `replay_in_processes` as `python -m agentgym_rl.envs.checking.check_process`: an `Order` as
JSON on standard input, a `Recording` on standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from agentgym_rl.envs import registry
from agentgym_rl.envs.service import protocol
from agentgym_rl.types import StepResult, Task

_MAX_TOLD_CHARS = 300


@dataclass(frozen=True, slots=True)
class Recording:
    """What a process saw, in plain JSON, so that several recordings can be compared."""

    tasks: dict[str, list[object]]
    """The tasks of every split."""
    plays: list[list[object]]
    """For each episode, the answer of every call, lists of available actions included."""


class ProcessFailedError(Exception):
    """A process could not play; the message says why."""


def replay_in_processes(
    env: str,
    options: Mapping[str, object],
    plays: Sequence[tuple[Task, Sequence[str]]],
    *,
    num_processes: int,
    timeout_s: float,
) -> list[Recording]:
    """Return what each process saw when it played these tasks with these actions.

    Raises ProcessFailedError when one fails or takes too long.
    """
    order = json.dumps(
        {
            "env": env,
            "options": dict(options),
            "plays": [{"task": task_fields(task), "actions": actions} for task, actions in plays],
        }
    ).encode()
    with ThreadPoolExecutor(num_processes) as pool:
        return list(pool.map(partial(_replay, order, timeout_s), range(1, num_processes + 1)))


def _replay(order: bytes, timeout_s: float, hash_seed: int) -> Recording:
    path = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "agentgym_rl.envs.checking.check_process"],
            input=order,
            capture_output=True,
            timeout=timeout_s,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
        )
    except subprocess.TimeoutExpired:
        raise ProcessFailedError(f"it did not end within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise ProcessFailedError(f"status {done.returncode}: {lines[-1][:_MAX_TOLD_CHARS]}")
    return Recording(**json.loads(done.stdout))


def task_fields(task: Task) -> object:
    return _plain(protocol.task_fields(task))


def result_fields(result: StepResult) -> object:
    return _plain(protocol.step_fields(result))


def _plain(value: object) -> object:
    return json.loads(json.dumps(value))  # not orjson, which refuses NumPy's numbers


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what environments print is not an answer
    sys.path.insert(0, "")  # as the checker's process has it, for a user's "module:Class"
    order = json.loads(sys.stdin.buffer.read())
    cls = registry.configured(registry.env_class(order["env"]), order["options"])
    plays: list[list[object]] = []
    for play in order["plays"]:
        env = registry.construct(cls, order["options"])
        try:
            seen: list[object] = [
                env.reset(protocol.decode_task(play["task"])),
                env.available_actions(),
            ]
            for action in play["actions"]:
                result = env.step(action)
                seen.append(result_fields(result))
                if not result.is_last:
                    seen.append(env.available_actions())
        finally:
            env.close()
        plays.append(seen)
    tasks = {split: [task_fields(task) for task in cls.tasks(split)] for split in cls.spec.splits}
    answers.write(json.dumps({"tasks": tasks, "plays": plays}).encode())
    answers.close()
    os._exit(0)  # threads of an environment must not keep the process alive


if __name__ == "__main__":
    main()
