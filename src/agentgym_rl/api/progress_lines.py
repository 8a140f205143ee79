"""How far an evaluation is, in lines that suit notebooks, terminals and files alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.types import Episode

_EVERY_S = 10.0


class ProgressLines(Progress):
    """Writes to standard error how much will be played, and every ten seconds how far it is."""

    def __init__(self, *, k: int, hint: str = "", clock: Callable[[], float] = time.monotonic):
        """`k` are the samples per task; `hint` ends the first line."""
        self._k, self._hint, self._clock = k, hint, clock
        self._total = self._num_done = self._num_new = self._num_solved = self._num_failed = 0
        self._began = self._told = clock()

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        self._total, self._num_done = total, done
        self._num_new = self._num_solved = self._num_failed = 0
        self._began = self._told = self._clock()
        tasks = total // self._k
        samples = f", {self._k} samples each" if self._k > 1 else ""
        _write(f"{phase}: {tasks} {'task' if tasks == 1 else 'tasks'}{samples}{self._hint}")

    def on_kept(self, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            self._count(episode)
        if episodes:
            _write(f"{len(episodes)} of {self._total} episodes are there already")

    def on_episode(self, episode: Episode) -> None:
        self._num_new += 1
        self._count(episode)
        now = self._clock()
        if now - self._told < _EVERY_S and self._num_done < self._total:
            return
        self._told = now
        _write(self._line(now))

    def _count(self, episode: Episode) -> None:
        self._num_done += 1
        self._num_failed += episode.is_failed
        self._num_solved += episode.success

    def _line(self, now: float) -> str:
        num_whole = self._num_done - self._num_failed
        success = f"success {self._num_solved / num_whole:.1%}" if num_whole else "no success"
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        left_s = (now - self._began) / self._num_new * (self._total - self._num_done)
        left = f", {left_s:.0f} s left" if self._num_done < self._total else ""
        return f"{self._num_done}/{self._total} episodes, {success}{failed}{left}"


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
