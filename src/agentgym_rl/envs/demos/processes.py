"""Experts in several processes, for environments whose experts take long (`ExpertProcesses`).

child.py is their program. Tasks are played several at a time and their outcomes come in the order
of the tasks, so what is found does not depend on the number of processes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import cast

import orjson

from agentgym_rl.envs.demos.demonstration import Demonstration, Outcome
from agentgym_rl.envs.execution.guarded import CallTimeoutError
from agentgym_rl.envs.service.protocol import task_fields
from agentgym_rl.errors import EnvError, how_it_ended
from agentgym_rl.types import Task

_AHEAD = 4
"""Tasks per process that are played before the outcome of an earlier one is there."""
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class ExpertOrder:
    """Which expert is wanted."""

    env: str
    options: Mapping[str, object]
    max_rounds: int
    call_timeout_s: float


class ExpertProcesses:
    """Processes that each ask an expert about one task at a time.

    Raises ValueError for an unknown environment or option, EnvError where it cannot be made.
    """

    def __init__(self, order: ExpertOrder, num_processes: int) -> None:
        self._order, self._num = order, num_processes
        self._idle = queue.SimpleQueue[_Child]()
        self._children: list[_Child] = []
        try:
            self._children += [_Child(order) for _ in range(num_processes)]
            for child in self._children:  # which start at the same time
                child.begin()
                self._idle.put(child)
        except BaseException:
            self.close()
            raise

    def outcomes(self, tasks: Sequence[Task]) -> Generator[tuple[Task, Outcome]]:
        """Yield tasks with what came of them, in order; some later ones are under way."""
        waiting = deque[tuple[Task, Future[Outcome]]]()
        with ThreadPoolExecutor(self._num, thread_name_prefix="expert") as threads:
            try:
                for task in tasks:
                    waiting.append((task, threads.submit(self._ask, task)))
                    if len(waiting) == _AHEAD * self._num:
                        task, outcome = waiting.popleft()
                        yield task, outcome.result()
                while waiting:
                    task, outcome = waiting.popleft()
                    yield task, outcome.result()
            finally:
                for _, outcome in waiting:
                    outcome.cancel()
                self.close()  # threads that wait for a process wait no longer

    def close(self) -> None:
        """End the processes, by force where that takes too long. Safe to repeat."""
        for child in self._children:
            child.leave()
        for child in self._children:
            child.wait()
        self._children = []

    def _ask(self, task: Task) -> Outcome:
        child = self._idle.get()
        try:
            return child.ask(task)
        finally:
            self._idle.put(child)


class _Child:
    """One process; another one is started where it has ended."""

    def __init__(self, order: ExpertOrder) -> None:
        self._order, self._is_leaving = order, False
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentgym_rl.envs.demos.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the run to handle
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        _tell(process, asdict(self._order))
        return process

    def begin(self) -> None:
        """Wait until it has its environment."""
        answer = _answer(self._process)
        if answer is None:
            raise EnvError(f"the expert's process {self._how_it_ended()}; see the log above")
        if "error" in answer:
            kind = ValueError if answer["kind"] == "order" else EnvError
            raise kind(str(answer["error"]))

    def ask(self, task: Task) -> Outcome:
        """Return what comes of a task; a process that ended meanwhile is one that broke."""
        try:
            if self._process.poll() is not None and not self._is_leaving:
                self._process = self._start()
                self.begin()
            _tell(self._process, task_fields(task))
            answer = _answer(self._process)
        except (OSError, ValueError, EnvError) as error:
            return Outcome(error=error)
        if answer is None:
            return Outcome(error=EnvError(f"the expert's process {self._how_it_ended()}"))
        if "hangs" in answer:
            return Outcome(error=CallTimeoutError(str(answer["hangs"])))
        if "broken" in answer:
            return Outcome(error=EnvError(str(answer["broken"])))
        if not answer:
            return Outcome()
        texts = cast(Mapping[str, list[str]], answer)
        return Outcome(
            Demonstration(
                task,
                tuple(texts["observations"]),
                tuple(texts["actions"]),
                tuple(texts["thoughts"]),
            )
        )

    def leave(self) -> None:
        """Let it end."""
        self._is_leaving = True
        assert self._process.stdin is not None, "it was asked for"
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until it has ended."""
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _how_it_ended(self) -> str:
        return how_it_ended(self._process.wait(_STOP_S))


def _tell(process: subprocess.Popen[bytes], what: object) -> None:
    assert process.stdin is not None, "it was asked for"
    process.stdin.write(orjson.dumps(what) + b"\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[bytes]) -> dict[str, object] | None:
    assert process.stdout is not None, "it was asked for"
    line = process.stdout.readline()
    return orjson.loads(line) if line.endswith(b"\n") else None
