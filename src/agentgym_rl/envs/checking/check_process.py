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
from dataclasses import dataclass

from agentgym_rl.envs import registry
from agentgym_rl.envs.service import protocol
from agentgym_rl.types import StepResult, Task

_MAX_TOLD_CHARS = 300


@dataclass(frozen=True, slots=True)
class PlannedEpisode:
    """What is to be played."""

    task: Task
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a process saw, in plain JSON, so that those of several can be compared."""

    tasks: dict[str, list[object]]
    """The tasks of every split."""
    plays: list[list[object]]
    """For each play, what every call of it answered: lists of actions are part of it."""


class ProcessFailedError(Exception):
    """A process could not play; the message says why."""


def replay_in_processes(
    env: str,
    options: Mapping[str, object],
    plays: Sequence[PlannedEpisode],
    *,
    num_processes: int,
    timeout_s: float,
) -> list[Recording]:
    """Return what each process saw. Raises ProcessFailedError when one fails or takes too long."""
    order = json.dumps(
        {
            "env": env,
            "options": dict(options),
            "plays": [{"task": task_fields(p.task), "actions": p.actions} for p in plays],
        }
    ).encode()
    started = [_start(order, hash_seed) for hash_seed in range(1, num_processes + 1)]
    try:
        return [_result(process, timeout_s) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None and process.stderr is not None, "both were asked for"
            process.stdout.close()
            process.stderr.close()


def _start(order: bytes, hash_seed: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym_rl.envs.checking.check_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
    )
    assert process.stdin is not None, "it was asked for"
    process.stdin.write(order)
    process.stdin.close()
    process.stdin = None  # so that `communicate` leaves it alone
    return process


def _result(process: subprocess.Popen[bytes], timeout_s: float) -> Recording:
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ProcessFailedError(f"it did not end within {timeout_s:g} s") from None
    if process.returncode != 0:
        told = errors.decode(errors="replace").strip().splitlines()
        last = told[-1] if told else "no message"
        raise ProcessFailedError(f"status {process.returncode}: {last[:_MAX_TOLD_CHARS]}")
    return Recording(**json.loads(output))


def task_fields(task: Task) -> object:
    """Return a task in plain JSON."""
    return _plain(protocol.task_fields(task))


def result_fields(result: StepResult) -> object:
    """Return an answer in plain JSON."""
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
