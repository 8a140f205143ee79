"""trackio: its local database, or the Space of TRACKIO_SPACE_ID; `trackio show` shows both.

A step is one row of the database, whole or absent. A run that resumes asks for the last one.
"""

from __future__ import annotations

from pathlib import Path

import trackio

from agentgym_rl.tracking.base import Entry, SampleEpisode, TrackedRun, Tracker, is_small


class TrackioTracker(Tracker):
    """Sends to trackio; the run's name there ends with its id, because names tell runs apart."""

    def open(self, run: TrackedRun) -> int:
        self._run = trackio.init(
            project=run.project,
            name=f"{run.name}-{run.id[:6]}",
            resume="allow",
            config=dict(run.settings),
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return self._run._next_step - 1  # trackio has no public name for it

    def log(self, entry: Entry) -> None:
        row: dict[str, object] = dict(entry.numbers)
        if entry.episodes:
            row["episodes"] = trackio.Table(
                columns=SampleEpisode.columns(),
                data=[episode.row() for episode in entry.episodes],
            )
        for index, episode in enumerate(entry.episodes):
            if episode.picture:
                row[f"picture/{index}"] = trackio.Image(str(episode.picture), caption=episode.task)
        self._run.log(row, step=entry.step)

    def finish(self, model: Path | None) -> None:
        if model is not None and is_small(model):
            name = f"model-{self._run.name}"
            self._run.log_artifact(str(model), name=name, type="model")
        self._run.finish()
