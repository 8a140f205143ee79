"""A run folder as a tracker reads it: an entry per step, numbers and a few episodes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from agentgym_rl.config.load import flatten
from agentgym_rl.config.recipes import read_table
from agentgym_rl.evaluation.report import eval_metrics
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.runs.pictures import picture_path
from agentgym_rl.tracking.base import Entry, SampleEpisode, TrackedRun

NUM_SAMPLES = 4
"""Episodes in the table of a step."""
_MAX_TEXT = 20_000
_COLUMNS = [
    "step", "env", "task_index", "task_seed", "group", "success", "reward", "stop_reason",
    "messages", "rounds",
]  # fmt: skip


class EntryReader:
    """Reads what a run has left so far; no file is held open, no line read twice."""

    def __init__(self, folder: Path) -> None:
        self._run, self._offset = RunFolder(folder), 0
        self._file = 0
        """Tells the file that is read from one that took its place."""
        self._lines: dict[int, Metrics] = {}
        self._table = read_table(self._run.config_file)
        evaluation = self._table.get("eval")
        self._is_evaluated = isinstance(evaluation, dict) and bool(evaluation.get("tasks"))

    def tracked(self, *, id_: str) -> TrackedRun:
        settings = {
            key: value if isinstance(value, bool | int | float | str) else json.dumps(value)
            for key, value in flatten(self._table).items()
        }
        return TrackedRun(
            folder=self._run.path.resolve(),
            id=id_,
            project=str(settings.get("tracking_project", "agentgym-rl")),
            settings=settings,
            config_text=self._run.config_file.read_text(encoding="utf-8"),
        )

    def next_after(self, step: int, *, until: int) -> Entry | None:
        """Return the first entry after `step`, of steps up to `until`; None where there is none."""
        if step < 0:
            first = self._first_evaluation()
            if first:
                return Entry(0, first, self._episodes(0))
            step = 0
        self._read_lines()
        later = [number for number in self._lines if step < number <= until]
        if not later:
            return None
        number = min(later)
        for passed in [known for known in self._lines if known < number]:
            del self._lines[passed]
        line = self._lines[number]
        numbers = {name: value for name, value in line.items() if name != "step"}
        return Entry(number, numbers, self._episodes(number))

    def rewind(self) -> None:
        """Read from the beginning."""
        self._offset = 0
        self._lines.clear()

    def _first_evaluation(self) -> Metrics:
        """Return the numbers of the evaluation before the first step."""
        return eval_metrics([report for report in read_reports(self._run) if report.step == 0])

    def _read_lines(self) -> None:
        file = self._run.metrics_file
        if not file.exists():
            return
        with file.open("rb") as lines:
            found_file = os.fstat(lines.fileno()).st_ino
            if found_file != self._file:  # a run that goes back to a checkpoint writes another
                self.rewind()
                self._file = found_file
            lines.seek(self._offset)
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._offset += len(line)
                found = json.loads(line)
                self._lines[int(found["step"])] = found

    def _episodes(self, step: int) -> tuple[SampleEpisode, ...]:
        """Return the first episodes of some tasks: of the evaluation, where the run has any."""
        phase = "eval" if self._is_evaluated else "train"
        part = self._run.episodes / f"{phase}-{step:06d}.parquet"
        if not part.exists():
            return ()
        rows = pq.read_table(part, columns=_COLUMNS).to_pylist()
        firsts: dict[int, Mapping[str, Any]] = {}
        for row in rows:
            firsts.setdefault(row["group"], row)
        return tuple(_sample(row, part) for row in list(firsts.values())[:NUM_SAMPLES])


def _sample(row: Mapping[str, Any], part: Path) -> SampleEpisode:  # Any: of Parquet
    task, rounds, messages = f"{row['env']}/{row['task_index']}", row["rounds"], row["messages"]
    task += f"/{row['task_seed']}" if row["task_seed"] else ""
    goals = [item["content"] for item in messages if item["role"] == "user"]
    said = [f"> {item['reply']}\n{item['observation']}" for item in rounds]
    names = [item["picture"] for item in rounds if item.get("picture")]
    return SampleEpisode(
        step=row["step"],
        env=row["env"],
        task=task,
        goal=(goals[0] if goals else "")[-_MAX_TEXT // 10 :],
        success=row["success"],
        reward=row["reward"],
        rounds=len(rounds),
        stop_reason=row["stop_reason"],
        text="\n".join(said)[:_MAX_TEXT],
        picture=_picture(part, names[-1]) if names else None,
    )


def _picture(part: Path, name: str) -> Path | None:
    """Return the file of a picture that a part of episodes names; None for any other file."""
    try:
        return picture_path(part.parent, part.stem, name)
    except (OSError, ValueError):
        return None
