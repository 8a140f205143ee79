"""The runs below a folder: which there are, where their files lie, and how each one stands.

A run is a folder with config.toml or metrics.jsonl, or with the episodes of `agentgym eval`; its id
is its path relative to the runs folder ("." for the runs folder itself). Nothing is written, and
nothing outside the runs folder is read: an id or a link that leads out of it is refused.
"""

from __future__ import annotations

import json
import os
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agentgym_rl.evaluation.settings import FILE as SETTINGS_FILE
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.regular_files import MEGABYTE, TooLargeError, read_regular
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.series import MetricSeries

_INNER = frozenset({"episodes", "checkpoints", "model", "tokenizer", "eval", "engine", "mlruns"})
"""Folders of a run that hold no runs; MLflow's, beside the runs, has copies of their settings."""
_MAX_DEPTH = 6
_MAX_FOLDERS = 20_000
"""Of a search: a runs folder that is somebody's home must not hold up the page."""
_MAX_CONFIG_BYTES = MEGABYTE // 4
_MAX_DOTS = 300
"""In a line of a recipe: for a key of n parts, reading TOML takes a time of n squared."""
_REMEMBERED_S = 2.0
"""How long a search of the runs folder is good for."""


@dataclass(frozen=True, slots=True)
class Config:
    """The recipe of a run, or the settings of an evaluation, as far as they can be read."""

    text: str = ""
    file: str = "config.toml"
    table: dict[str, object] | None = None
    problem: str | None = None

    @property
    def is_evaluation(self) -> bool:
        return self.file == SETTINGS_FILE

    def get(self, section: str, key: str) -> object:
        """Return a setting; None where there is none."""
        inner = (self.table or {}).get(section)
        return inner.get(key) if isinstance(inner, dict) else None

    def word(self, section: str, key: str) -> str | None:
        """Return a setting that is a text."""
        value = self.get(section, key)
        return value if isinstance(value, str) else None

    @property
    def envs(self) -> str | None:
        """What a run is on: the name of its environment, or the labels of several."""
        tables = (self.table or {}).get("envs")
        if isinstance(tables, dict) and tables:
            return " + ".join(map(str, tables))
        return self.word("env", "name")

    @property
    def target_steps(self) -> int | None:
        """How many steps a run is to have; None for an evaluation, or where no recipe says."""
        steps = None if self.is_evaluation else self.get("training", "steps")
        return steps if isinstance(steps, int) and not isinstance(steps, bool) else None

    def agent_in(self, env: str) -> dict[str, object]:
        """Return the settings of the agent in an environment, given by its name or label."""
        agent: dict[str, object] = {}
        tables = (self.table or {}).get("envs")
        several = list(tables.items()) if isinstance(tables, dict) else []
        own = [inner for label, inner in several if env in (label, _get(inner, "name"))]
        for found in (_get(self.table, "agent"), *(_get(inner, "agent") for inner in own[:1])):
            agent |= found if isinstance(found, dict) else {}
        return agent

    def replayed_env(self, env: str) -> tuple[str, dict[str, object]]:
        """Return the name and the options of the environment that stored episodes call `env`."""
        table = self.get("envs", env)
        if not isinstance(table, dict):
            options = self.get("env", "options")
            return env, options if isinstance(options, dict) else {}
        name, options = table.get("name"), table.get("options")
        return name if isinstance(name, str) else env, options if isinstance(options, dict) else {}


def _get(table: object, key: str) -> object:
    return table.get(key) if isinstance(table, dict) else None


class RunCatalog:
    """Finds runs and opens their files. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._found: tuple[float, list[str], str | None] = (-1e9, [], None)
        self._series: dict[str, MetricSeries] = {}
        self._configs: dict[str, tuple[object, Config]] = {}

    def find(self) -> tuple[list[str], str | None]:
        """Return the ids of all runs, sorted, and what is wrong with the search, if anything."""
        with self._lock:
            found_at, ids, problem = self._found
            if time.monotonic() - found_at > _REMEMBERED_S:
                ids, problem = _search(self.root)
                self._found = (time.monotonic(), ids, problem)
            return ids, problem

    def folder(self, run: str) -> RunFolder:
        """Return the folder of a run; refuses anything else."""
        if "\0" in run or not run:
            raise ApiError(400, f"{run!r} is not the name of a run")
        parts = PurePosixPath(run).parts
        if run.startswith(("/", "~")) or ".." in parts:
            raise ApiError(400, f"{run!r} is not a path below the runs folder")
        path = self.inside(self.root / run)
        try:
            is_there = is_run(path)
        except OSError as error:
            raise ApiError(404, f"run {run!r} cannot be read: {error.strerror}") from None
        if not is_there:
            raise ApiError(404, f"there is no run {run!r} below the runs folder")
        return RunFolder(path)

    def inside(self, path: Path) -> Path:
        """Return where a path leads to; refuses one that leads out of the runs folder."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):
            raise ApiError(404, f"{path.name!r} cannot be read") from None
        if not real.is_relative_to(self.root):
            raise ApiError(403, f"{path.name!r} leads out of the runs folder, so it is not read")
        return real

    def series(self, run: str) -> MetricSeries:
        """Return the metrics of a run, remembered between requests."""
        file = self.inside(self.folder(run).metrics_file)
        with self._lock:
            return self._series.setdefault(str(file), MetricSeries(file))

    def config(self, run: str) -> Config:
        """Return the recipe of a run, with what is wrong with it."""
        file = self._config_file(self.folder(run))
        try:
            stat = file.stat()
        except OSError as error:
            return Config(problem=f"config.toml cannot be read: {error.strerror}")
        state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        known = self._configs.get(str(file))
        if known is None or known[0] != state:
            known = self._configs[str(file)] = (state, _read_config(file))
        return known[1]

    def _config_file(self, folder: RunFolder) -> Path:
        """Return the recipe; of an evaluation its settings, which horizons have above them."""
        if not folder.config_file.exists():
            for above in (folder.path, folder.path.parent):
                settings = above / SETTINGS_FILE
                if settings.is_file() and settings.resolve().is_relative_to(self.root):
                    return settings.resolve()
        return self.inside(folder.config_file)

    def episodes(self, run: str) -> Path:
        """Return the folder with the parts of a run, or of `agentgym eval`."""
        folder = self.folder(run)
        episodes = self.inside(folder.episodes)
        return episodes if episodes.is_dir() else folder.path


def is_run(path: Path) -> bool:
    if (path / "config.toml").is_file() or (path / "metrics.jsonl").is_file():
        return True
    return path.is_dir() and any(path.glob("eval-*.parquet"))


def _search(root: Path) -> tuple[list[str], str | None]:
    ids: list[str] = []
    num_folders = 0
    for folder in _folders(root):
        num_folders += 1
        if num_folders > _MAX_FOLDERS:
            return sorted(ids), f"only the first {_MAX_FOLDERS} folders were searched for runs"
        try:
            if is_run(folder):
                ids.append(folder.relative_to(root).as_posix())
        except OSError:
            continue
    return sorted(ids), None


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders that may hold runs, widest first. Links are not followed."""
    level = [root]
    for _ in range(_MAX_DEPTH):
        yield from level
        level = [inner for folder in level for inner in _inner_folders(folder)]


def _inner_folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
                and entry.name not in _INNER
                and not entry.name.startswith(".")
            )
    except OSError:
        return []


def _read_config(file: Path) -> Config:
    try:
        text = read_regular(file, max_bytes=_MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except (OSError, TooLargeError) as error:
        return Config(file=file.name, problem=f"{file.name} cannot be read: {error}")
    is_toml = file.name != SETTINGS_FILE
    if is_toml and max(line.count(".") for line in text.split("\n")) > _MAX_DOTS:
        problem = f"{file.name} is not a recipe: a line of it has more than {_MAX_DOTS} dots"
        return Config(text, file.name, problem=problem)
    try:
        table = tomllib.loads(text) if is_toml else _nested(json.loads(text))
        return Config(text, file.name, table)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if is_toml else "the settings of an evaluation"
        return Config(text, file.name, problem=f"{file.name} is not {kind}: {error}")


def _nested(settings: object) -> dict[str, object]:
    """Return the settings of an evaluation, which have dotted keys, as sections of a recipe."""
    if not isinstance(settings, dict) or not isinstance(settings.get("config"), dict):
        raise ValueError("there is no `config` in it")
    table: dict[str, object] = {}
    for key, value in settings["config"].items():
        *sections, name = str(key).split(".")
        inner = table
        for section in sections:
            found = inner.setdefault(section, {})
            if not isinstance(found, dict):
                raise ValueError(f"{key!r} is inside something that is not a section")
            inner = found
        inner[name] = value
    # The model of an evaluation is the one that it names; `model.path` is that of its training.
    own = table.get("model")
    table["model"] = (own if isinstance(own, dict) else {}) | {"path": settings.get("model")}
    return table
