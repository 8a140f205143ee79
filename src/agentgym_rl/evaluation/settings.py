"""What decides an evaluation, kept as `evaluation.json` beside its report.

An evaluation that was killed resumes only with the settings that it began with, and two are
compared only where these let them be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath

from agentgym_rl.config import RunConfig
from agentgym_rl.config.load import flatten
from agentgym_rl.config.renamed import with_present_keys
from agentgym_rl.errors import RunError
from agentgym_rl.rollout.chosen_tasks import TaskName
from agentgym_rl.runs.folder import write_atomically
from agentgym_rl.runs.regular_files import MEGABYTE, read_regular
from agentgym_rl.types import Task

FILE = "evaluation.json"
_MAX_BYTES = MEGABYTE

_FREE = (
    "rollout.max_concurrency",
    "rollout.max_restarts",
    "rollout.picture_share",
    "engine.timeout_s",
    "env.workers",
)
"""May change between two calls: they decide how an evaluation gets on, not its result."""
_ADDED: dict[str, object] = {"env.tasks_file": "", "env.eval_tasks_file": ""}
"""What older evaluations had without saying so."""
_SECTIONS = ("seed", "env", "reward", "model", "agent", "engine", "rollout", "eval")
"""What an evaluation reads of a recipe; the rest is about training."""


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """The settings of an evaluation on one environment, by dotted key."""

    model: str
    """As it was named; a path in full."""
    weights: str
    """Changes with the files of a model directory; empty where there is none."""
    samples_per_task: int
    horizons: tuple[int, ...]
    per_category: int = 0
    tasks: tuple[str, ...] = ()
    """Ids of the tasks, where a program chose them."""
    config: Mapping[str, object] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, json.dumps(asdict(self), indent=2) + "\n")

    def differences(self, other: EvalSettings) -> list[str]:
        """Return "key: this one's / the other's" for each setting that makes another result."""
        mine, theirs = self._values(), other._values()
        return [
            f"{key}: {mine.get(key)!r} / {theirs.get(key)!r}"
            for key in dict.fromkeys([*mine, *theirs])
            if key not in _FREE and mine.get(key) != theirs.get(key)
        ]

    def _values(self) -> dict[str, object]:
        own: dict[str, object] = {
            "model": self.model,
            "the model's files": self.weights,
            "samples per task": self.samples_per_task,
            "rounds": list(self.horizons),
            "tasks per category": self.per_category,
            "tasks": list(self.tasks),
        }
        return own | dict(self.config)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is evaluated on every environment."""

    model: str
    """A directory or hub name to load, or the name of an endpoint's model."""
    samples_per_task: int = 1
    horizons: tuple[int, ...] = (0,)
    """Limits on rounds; 0 for the environment's own."""
    per_category: int = 0
    """Tasks of each category; 0 for the number in `eval.tasks`."""
    tasks: tuple[TaskName, ...] = ()
    """These tasks, instead of those that the settings choose."""

    def settings(self, config: RunConfig) -> EvalSettings:
        """Return what decides the evaluation under a configuration."""
        path = Path(self.model).expanduser()
        is_local = config.engine.type != "openai" and path.exists()
        table = config.model_dump(mode="json", include=set(_SECTIONS))
        return EvalSettings(
            str(path.resolve()) if is_local else self.model,
            _fingerprint(path) if is_local else "",
            self.samples_per_task,
            self.horizons,
            self.per_category,
            tuple(task.id if isinstance(task, Task) else str(task) for task in self.tasks),
            dict(sorted(flatten(table).items())),
        )


def load_settings(folder: Path) -> EvalSettings | None:
    """Return the settings of the evaluation in a folder; None where there is none."""
    file = folder / FILE
    if not file.exists():
        return None
    try:
        data = json.loads(read_regular(file.resolve(), max_bytes=_MAX_BYTES))
        if "attempts" in data:  # the name in older files
            data["samples_per_task"] = data.pop("attempts")
        data["config"] = _ADDED | with_present_keys(data.get("config", {}))
        lists = {"horizons": tuple(data["horizons"]), "tasks": tuple(data.get("tasks", ()))}
        return EvalSettings(**(data | lists))
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise RunError(f"{file} cannot be read ({error}); choose another folder") from error


def model_name(model: str) -> str:
    """Return what reports call a model: of one in a run, "my-run" or "my-run/step-40"."""
    path = Path(model)
    if not path.is_absolute() and not path.exists():
        return model  # of a hub or an endpoint
    return name_of_path(path if path.is_absolute() else path.resolve())


def name_of_path(path: PurePath) -> str:
    """Return what reports call the model of an absolute path; nothing is looked up."""
    if path.name != "model":
        return path.name
    folder = path.parent
    is_checkpoint = folder.parent.name == "checkpoints"
    return f"{folder.parent.parent.name}/{folder.name}" if is_checkpoint else folder.name


def begin_or_resume(folder: Path, settings: EvalSettings) -> None:
    """Keep the settings of a new evaluation; refuse a folder that holds another one."""
    found = load_settings(folder)
    if found is None:
        if (folder / "report.json").exists():
            raise RunError(
                f"{folder} holds a report without {FILE}, so what it evaluated is unknown; "
                "choose another folder"
            )
        settings.save(folder)
        return
    differences = found.differences(settings)
    if differences and not any(folder.rglob("*.parquet")):
        settings.save(folder)  # what began there, perhaps with a wrong model, left nothing
    elif differences:
        more = f" and {len(differences) - 5} more" if len(differences) > 5 else ""
        raise RunError(
            f"{folder} holds an evaluation with other settings (there / now): "
            f"{'; '.join(differences[:5])}{more}; choose another folder, or repeat its command "
            "to resume it"
        )


def _fingerprint(path: Path) -> str:
    """Return a hash of the names, sizes and times of a model's files: reading them takes long."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(file.name, file.stat()) for file in files if file.is_file()]
    text = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
