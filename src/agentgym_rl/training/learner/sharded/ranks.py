"""The processes of a sharded learner, seen from the controller: start, orders, answers, deaths.

An order is the name of one of `Rank`'s methods with an argument for each rank. Every rank answers,
or all are ended and the error says which one failed, and how: nobody waits for ever.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Literal

from agentgym_rl.engines.pool.line import HostedProcess
from agentgym_rl.errors import AgentGymError, LearnerDiedError, RunError, how_it_ended
from agentgym_rl.forks import FORKS, import_before_forks
from agentgym_rl.training.learner.sharded.rank import Failed, RankPlan, run_rank

logger = logging.getLogger(__name__)

StartMethod = Literal["forkserver", "fork"]
_CONTEXTS = {"forkserver": FORKS, "fork": multiprocessing.get_context("fork")}
_GRACE_S = 5.0
"""How long a rank may take to end, and how long others may take to say what they saw of it."""


@dataclass(frozen=True, slots=True)
class StartedRank:
    """A rank's process, the link for orders, and the one where it says that a state is written."""

    process: HostedProcess
    link: Connection
    written: Connection


class Ranks:
    """Owns the processes; `close` or the end of the object ends them."""

    def __init__(self, started: Sequence[StartedRank], *, timeout_s: float) -> None:
        """`timeout_s` is the deadline of an order, the first of which is to start."""
        self._timeout_s, self._calling = timeout_s, threading.Lock()
        self._links = [rank.link for rank in started]
        self._written = [rank.written for rank in started]
        """Where each rank says that it has written a state."""
        self._processes = [rank.process for rank in started]
        ends = [*self._links, *self._written]
        self._finalizer = weakref.finalize(self, _end, ends, self._processes)
        self._answers("start")

    def call(self, name: str, arguments: Sequence[object]) -> list[object]:
        """Give an order, with one argument for each rank; return the answers in order.

        One at a time: an engine that is replaced gets its weights on a thread of its own.
        """
        with self._calling:
            return self._call(name, arguments)

    def _call(self, name: str, arguments: Sequence[object]) -> list[object]:
        if not self._finalizer.alive:
            raise LearnerDiedError(f"the learner's processes have ended, so it cannot {name}")
        watchdog = threading.Timer(self._timeout_s, self._kill)  # a full pipe blocks a sender
        watchdog.daemon = True
        watchdog.start()
        try:
            for link, argument in zip(self._links, arguments, strict=True):
                link.send((name, argument))
        except OSError:
            pass  # whose process died is found while waiting
        finally:
            watchdog.cancel()
        return self._answers(name)

    def wait_written(self) -> None:
        """Wait until all ranks have written the state that they were last ordered to save.

        Any thread may call it, while another gives orders.
        """
        deadline = time.monotonic() + self._timeout_s
        failures = [self._failure(rank, deadline) for rank in range(len(self._written))]
        # What the others report is often that one has died.
        for kind in (LearnerDiedError, RunError):
            for failure in failures:
                if isinstance(failure, kind):
                    raise failure

    def _failure(self, rank: int, deadline: float) -> AgentGymError | None:
        """Return why a rank did not write its state; None if it did."""
        written, process = self._written[rank], self._processes[rank]
        left = max(0.0, deadline - time.monotonic())
        died = LearnerDiedError(f"rank {rank} ended before it had written its state")
        try:
            if not wait([written, process.sentinel], timeout=left):
                return RunError(f"rank {rank} did not write within {self._timeout_s:.0f} s")
            answer = written.recv() if written.poll() else died
        except (EOFError, OSError):
            answer = died
        if isinstance(answer, Failed):
            return RunError(f"rank {rank} could not write its state: {answer.error}")
        if isinstance(answer, AgentGymError):
            return answer
        self._on_written(answer)
        return None

    def check(self) -> None:
        """Raise LearnerDiedError if a rank has died, unless an order is under way, which finds out.

        Any thread may call it.
        """
        if not self._calling.acquire(blocking=False):
            return
        try:
            for rank, process in enumerate(self._processes):
                if self._finalizer.alive and not process.is_alive():
                    self._fail("wait", _death(rank, process))
        finally:
            self._calling.release()

    def _on_written(self, answer: object) -> None:
        """Take what a rank says after it has written its part of a state."""

    def close(self) -> None:
        """End all ranks; calling it again does nothing."""
        self._finalizer()

    def _answers(self, name: str) -> list[object]:
        answers: dict[int, object] = {}
        deadline = time.monotonic() + self._timeout_s
        while len(answers) < len(self._links):
            missing = [rank for rank in range(len(self._links)) if rank not in answers]
            watched = [self._links[rank] for rank in missing]
            watched += [self._processes[rank].sentinel for rank in missing]
            if not wait(watched, timeout=max(0.0, deadline - time.monotonic())):
                self._fail(name, f"rank {missing[0]} did not answer within {self._timeout_s:.0f} s")
            for rank in missing:
                answer = self._received(rank)
                if isinstance(answer, Failed):
                    self._fail(name, self._reason(rank, answer))
                if answer is not _NOTHING:
                    answers[rank] = answer
        return [answers[rank] for rank in range(len(self._links))]

    def _received(self, rank: int) -> object:
        """Return a rank's answer, a `Failed` for a dead one, `_NOTHING` if it still computes."""
        link, process = self._links[rank], self._processes[rank]
        is_alive = process.is_alive()  # asked first: its last words may be in the link
        try:
            if link.poll():
                return link.recv()
        except (EOFError, OSError):
            process.join(_GRACE_S)
            is_alive = False
        return _NOTHING if is_alive else Failed(_death(rank, process), "")

    def _reason(self, rank: int, failed: Failed) -> str:
        """Return why an order failed; a rank that was killed explains what the others report."""
        if not failed.trace:
            return failed.error
        logger.error("learner rank %d failed:\n%s", rank, failed.trace)
        others = [process for place, process in enumerate(self._processes) if place != rank]
        wait([process.sentinel for process in others], timeout=_GRACE_S if others else 0.0)
        for place, process in enumerate(self._processes):
            if process.exitcode is not None and process.exitcode < 0:
                return _death(place, process)
        return f"rank {rank} failed: {failed.error}"

    def _fail(self, name: str, reason: str) -> None:
        self._kill()
        self.close()
        raise LearnerDiedError(
            f"the sharded learner ended during {name!r}: {reason} (training.shards="
            f"{len(self._links)})"
        )

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


_NOTHING = object()


StartRanks = Callable[[RankPlan, int], Ranks]
"""Starts this many ranks somewhere, and returns when all have met."""


def start_ranks_here(plan: RankPlan, num_ranks: int) -> Ranks:
    """Start ranks as processes of this machine."""
    return Ranks(_started(plan, num_ranks, "forkserver"), timeout_s=plan.timeout_s)


def fork_ranks_here(plan: RankPlan, num_ranks: int) -> Ranks:
    """Start ranks in a moment; only for a controller without a GPU and threads."""
    return Ranks(_started(plan, num_ranks, "fork"), timeout_s=plan.timeout_s)


def _started(plan: RankPlan, num_ranks: int, start_method: StartMethod) -> list[StartedRank]:
    context, started = _CONTEXTS[start_method], list[StartedRank]()
    if start_method == "forkserver":
        import_before_forks(__name__)
    for rank in range(num_ranks):
        link, theirs = context.Pipe()
        written, their_written = context.Pipe(duplex=False)
        foreign = [end for other in started for end in (other.link, other.written)]
        foreign += [link, written]
        process = context.Process(
            target=run_rank,
            args=(
                rank,
                num_ranks,
                (theirs, their_written),
                plan,
                foreign if start_method == "fork" else [],
            ),
            name=f"learner-{rank}",
            daemon=True,
        )
        process.start()
        theirs.close()
        their_written.close()
        started.append(StartedRank(process, link, written))
    return started


def _death(rank: int, process: HostedProcess) -> str:
    return f"rank {rank} {how_it_ended(process.exitcode)}"


def _end(links: Sequence[Connection], processes: Sequence[HostedProcess]) -> None:
    """Close the links, which ends idle ranks, and kill those that do not end."""
    for link in links:
        link.close()
    for process in processes:
        process.join(_GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()
