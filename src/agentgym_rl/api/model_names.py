"""What the name of a model to evaluate means: a run, a checkpoint, a directory, or a hub name."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.config import TINY, is_meant_as_path
from agentgym_rl.errors import ConfigError, did_you_mean, some_of
from agentgym_rl.runs.folder import RunFolder

RUNS = Path("runs")
"""Where runs are unless the user says otherwise."""


def model_directory(model: str) -> str:
    """Return the directory to load: the model of a run folder or a checkpoint, else as given."""
    path = Path(model).expanduser()
    for inner in ("model", "checkpoints/latest/model", "latest/model"):
        if (path / inner).is_dir():
            return str((path / inner).resolve())  # what `latest` points at may change
    if (path / "config.toml").is_file():
        raise ConfigError(f"the run in {model} has no checkpoint yet, and so no model")
    if path.is_dir() and not any(path.glob("*.json")) and not any(path.glob("*.gguf")):
        runs = sorted(file.parent.name for file in path.glob("*/config.toml"))
        remedy = f"name one of its runs: {', '.join(runs)}" if runs else "name another folder"
        raise ConfigError(f"there is no model in {model}; {remedy}")
    refuse_missing(model)
    if model == TINY and not path.exists():
        raise ConfigError(
            f"there is no model {TINY!r} to evaluate: training makes one from the environment's "
            "text; name the folder of a run that did (such as of `agentgym train quickstart`), a "
            "model directory or a hub name"
        )
    return str(path) if path.exists() else model


def refuse_missing(model: str) -> None:
    """Raise ConfigError for a path at which there is nothing. A name that may be one of the hub's,
    such as "Qwen/Qwen2.5-0.5B", is not a path."""
    path = Path(model).expanduser()
    if path.exists() or not _is_meant_as_path(model, path):
        return
    beside = path.parent
    if not beside.is_dir():
        raise ConfigError(
            f"there is no folder {model!r}, nor {str(beside)!r}; `agentgym runs` lists the runs "
            f"in {str(RUNS)!r}"
        )
    names = sorted(item.name for item in beside.iterdir() if item.is_dir())
    is_part = beside.name == "checkpoints" or run_of(str(beside)) is not None
    hint = "" if is_part else did_you_mean(path.name, names)
    where = "" if beside == RUNS else f" {beside}"
    remedy = "" if is_part else f"; `agentgym runs{where}` lists the runs there"
    raise ConfigError(
        f"there is no model {model!r}{hint}; {beside} has {some_of(names) or 'no folders'}{remedy}"
    )


def run_of(model: str) -> RunFolder | None:
    """Return the run folder that a path is, or lies in."""
    path = Path(model)
    for folder in (path, *list(path.parents)[:3]) if path.exists() else ():
        if (folder / "config.toml").is_file():
            return RunFolder(folder)
    return None


def _is_meant_as_path(model: str, path: Path) -> bool:
    if is_meant_as_path(model):
        return True
    if len(path.parts) < 2:
        return False
    beside = path.parent
    if beside in (RUNS, Path("eval")) or beside.name == "checkpoints":
        return True
    return beside.is_dir() and any((item / "config.toml").is_file() for item in beside.iterdir())
