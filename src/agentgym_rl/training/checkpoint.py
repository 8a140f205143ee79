"""Checkpoints: the weights as an ordinary model directory, and the learner beside it.

checkpoints/step-N/model/         loadable with from_pretrained, and with `agentgym eval`
checkpoints/step-N/learner.pt     the optimiser; reference and critic where there are any
checkpoints/step-N/learner/       the same from a learner on several processes, in shards
checkpoints/step-N/state.json     the step, and the state of the collector

A run goes on as soon as everything is copied to the CPU's memory. The copies are written on a
thread, and the checkpoint counts, by its name, when all of it is on the disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from agentgym_rl.errors import LearnerDiedError, RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.collect.collection import Collector
from agentgym_rl.training.learner.group import LearnerGroup

logger = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes one checkpoint at a time in the background; its end waits for the last one."""

    def __init__(self, run: RunFolder, *, keep: int) -> None:
        self._run, self._keep = run, keep
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._complete: SimpleQueue[tuple[Path, int]] = SimpleQueue()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.wait()
        except Exception as failure:
            if error is None or isinstance(error, asyncio.CancelledError):
                raise
            if isinstance(error, LearnerDiedError) and isinstance(failure, LearnerDiedError):
                return  # both say so
            logger.exception("the last checkpoint was not written")  # beside what ended the run

    def save(
        self,
        policy: Policy,
        learner: LearnerGroup,
        *,
        step: int,
        collector: Mapping[str, object] | None = None,
    ) -> None:
        """Copy everything that the checkpoint of a step has, and begin to write it.

        First waits for the one before, and raises if that could not be written.
        """
        self.wait()
        written = self._run.checkpoints / f".writing-{step}"
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir(parents=True)
        learner.fetch_weights()
        state = {"step": step, **(collector or {})}
        (written / "state.json").write_text(json.dumps(state), encoding="utf-8")
        parts = [learner.save_state(written), policy.begin_save(written / "model")]
        self._thread = threading.Thread(
            target=self._finish, args=(parts, written, step), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk; raises if it could not be written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def take_complete(self) -> Iterator[tuple[Path, int]]:
        """Yield folder and step of the checkpoints that were completed since the last call."""
        while not self._complete.empty():
            yield self._complete.get()

    def _finish(self, parts: Sequence[Callable[[], None]], written: Path, step: int) -> None:
        try:
            for write in parts:
                write()
            path = self._run.complete_checkpoint(written, step, keep=self._keep)
            self._complete.put((path, step))
        except LearnerDiedError as error:  # raised, as the other, by the next `wait`
            self._error = error
        except Exception as error:  # noqa: BLE001
            # On a full disk torch names two positions in a file, and nothing else.
            free = shutil.disk_usage(written.parent).free / 2**30
            shutil.rmtree(written, ignore_errors=True)
            self._error = RunError(
                f"a checkpoint could not be written to {self._run.checkpoints}, where {free:.1f} "
                f"GiB are free: {error}"
            )
            self._error.__cause__ = error


def restore_checkpoint(
    run: RunFolder, learner: LearnerGroup, collector: Collector | None = None
) -> int:
    """Restore learner and collector from the newest checkpoint; return its step, 0 without one.

    The weights are loaded with the policy.
    """
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return 0
    try:
        learner.restore_state(checkpoint)
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        step = int(state["step"])
        if collector is not None:
            collector.resume(step, state)
    except LearnerDiedError:
        raise  # the checkpoint is not at fault
    except Exception as error:
        raise RunError(
            f"the checkpoint {checkpoint} is damaged ({type(error).__name__}); point "
            f"{run.checkpoints / 'latest'} at an older one, or start a new run"
        ) from error
    return step
