"""What two runs were told differently, setting by setting, and the command that repeats one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from agentgym_rl.config.load import flatten
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import Config, RunCatalog

_MAX_CHARS = 2000


def config_difference(catalog: RunCatalog, run: str, other: str) -> dict[str, object]:
    """Return the settings that differ, by dotted key; null where one of the two has none."""
    flat = [_flat(catalog.config(name), name) for name in (run, other)]
    keys = sorted(flat[0].keys() | flat[1].keys())
    differing = [
        {"key": key, "here": flat[0].get(key), "there": flat[1].get(key)}
        for key in keys
        if flat[0].get(key) != flat[1].get(key)
    ]
    return {"differing": differing, "num_settings": len(keys)}


def repeating_command(catalog: RunCatalog, run: str) -> str | None:
    """Return the command that makes a run anew, elsewhere; None where it has no whole recipe."""
    config = catalog.config(run)
    if config.table is None or config.is_evaluation:
        return None
    file = catalog.folder(run).config_file
    again = catalog.root / f"{catalog.root.name if run == '.' else run}-again"
    words = ["agentgym", "train", _near(file), "--run-dir", _near(again)]
    return " ".join(map(shlex.quote, words))


def _flat(config: Config, run: str) -> dict[str, str]:
    if config.table is None:
        raise ApiError(409, config.problem or f"{run!r} has no configuration to compare")
    try:
        return {key: _text(value) for key, value in flatten(config.table).items()}
    except RecursionError:
        raise ApiError(409, f"the configuration of {run!r} is nested too deeply") from None


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:_MAX_CHARS]


def _near(path: Path) -> str:
    """Return a path as one types it where the UI was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
