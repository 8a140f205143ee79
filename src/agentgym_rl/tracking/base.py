"""What a tracker is: an object in a process of its own, told about one step after another.

    class ToSpreadsheet(Tracker):                    # tracking = ["my_module:ToSpreadsheet"]
        def open(self, run: TrackedRun) -> int: ...
        def log(self, entry: Entry) -> None: ...
        def finish(self, model: Path | None) -> None: ...

It may raise, hang or die: the run does not notice (`process.py`, `trackers.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from agentgym_rl.runs.folder import Metrics

NOTHING_YET = -1
"""`Tracker.open` of one that has no step."""
MAX_MODEL_BYTES = 50_000_000
"""A larger model is named by its path, and not copied into a tracker."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run, as a tracker sees it."""

    folder: Path
    """The run folder, absolute."""
    id: str
    """Made when the run is first tracked, and the same whenever it resumes."""
    project: str
    settings: Mapping[str, str | int | float | bool]
    """The whole configuration, by dotted key."""
    config_text: str
    """The same as TOML."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def own_files(self) -> Path:
        """Where trackers keep files of this run."""
        return self.folder / "tracking"


@dataclass(frozen=True, slots=True)
class SampleEpisode:
    """A row of the table of episodes."""

    step: int
    env: str
    task: str
    goal: str
    success: bool
    reward: float | None
    rounds: int
    stop_reason: str
    text: str
    """What was said and done, round by round."""
    picture: Path | None = None
    """Of the last round that has one."""

    @classmethod
    def columns(cls) -> list[str]:
        """Return the columns of a table; a picture is no column."""
        return [field.name for field in fields(cls) if field.name != "picture"]

    def row(self) -> list[object]:
        return [getattr(self, name) for name in self.columns()]

    @property
    def label(self) -> str:
        """The task as part of a file name."""
        return self.task.replace("/", "-")


@dataclass(frozen=True, slots=True)
class Entry:
    """What happened in a step; step 0 is the evaluation before the first."""

    step: int
    numbers: Metrics
    """The line of metrics.jsonl without its `step`."""
    episodes: tuple[SampleEpisode, ...] = ()


class Tracker(ABC):
    """Where a run is sent."""

    is_live: ClassVar[bool] = False
    """Whether what was sent can be replaced when a run resumes: such a tracker gets a step when it
    ends. Any other gets it when a checkpoint holds it, after which it is never made again."""

    note: str = ""
    """What the user should know, said once when the run ends."""

    @abstractmethod
    def open(self, run: TrackedRun) -> int:
        """Begin the run, or find it again; return the last step that is there already.

        All later steps are sent, also those of earlier processes. `NOTHING_YET` asks for all.
        """

    @abstractmethod
    def log(self, entry: Entry) -> None:
        """Take an entry. Where this raises, the entry comes again."""

    @abstractmethod
    def finish(self, model: Path | None) -> None:
        """Write out everything. `model` is the final model; None: the run may resume."""


def is_small(folder: Path) -> bool:
    """Whether a model is copied into a tracker."""
    sizes = (file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return sum(sizes) <= MAX_MODEL_BYTES
