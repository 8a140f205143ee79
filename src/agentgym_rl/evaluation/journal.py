"""The journal of an evaluation: episodes are kept as they end, so a killed evaluation can resume.

`parts/` beside the report gets a Parquet part every few episodes or seconds, each written whole or
not at all. When the evaluation has ended all of them are in one file, and `parts/` is removed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.rollout.collect import EpisodeName
from agentgym_rl.runs.episode_columns import episodes_table
from agentgym_rl.runs.episodes import read_episodes, write_episodes, write_part
from agentgym_rl.runs.pictures import write_pictures
from agentgym_rl.types import Episode

_EPISODES_PER_PART = 64
_SECONDS_PER_PART = 5.0
_STEP = 0
"""A model that is evaluated by itself is of no training step."""


class Journal:
    """The episodes of one evaluation in its folder. One process writes at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._parts = folder, folder / "parts"
        self._buffer = list[Episode]()
        self._written_at = time.monotonic()

    def read(self) -> dict[EpisodeName, Episode]:
        """Return the episodes of earlier calls by name.

        Those that the infrastructure ended are left out: they are played again.
        """
        whole = self._folder / f"eval-{_STEP:06d}.parquet"
        files = [*([whole] if whole.exists() else []), *sorted(self._parts.glob("*.parquet"))]
        episodes = [
            episode for file in files for episode in read_episodes(file, with_pictures=True)
        ]
        return {
            (episode.task.id, episode.sample_index): episode
            for episode in episodes
            if not episode.is_failed
        }

    def add(self, episode: Episode) -> None:
        """Keep an episode; it is on disk after a few more, or a few seconds."""
        self._buffer.append(episode)
        is_old = time.monotonic() - self._written_at > _SECONDS_PER_PART
        if is_old or len(self._buffer) >= _EPISODES_PER_PART:
            self.flush()

    def flush(self) -> None:
        if self._buffer:
            number = len(list(self._parts.glob("*.parquet")))
            path = self._parts / f"{number:06d}.parquet"
            groups = [[episode] for episode in self._buffer]
            write_pictures(self._parts, path.stem, groups)
            write_part(path, episodes_table(groups, phase="eval", step=_STEP, scores_of=None))
            self._buffer = []
        self._written_at = time.monotonic()

    def finish(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Put all episodes into one file, in the order of tasks, and drop the parts."""
        write_episodes(self._folder, groups, phase="eval", step=_STEP)
        self._buffer = []
        shutil.rmtree(self._parts, ignore_errors=True)
