"""`agentgym bench`: runs the programs of the folder `benchmarks`, which have their own options."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.errors import (
    ConfigError,
    did_you_mean,
    install_command,
    missing_training_package,
)

_PROGRAMS = {
    "env": "env_bench",
    "soak": "env_soak",
    "experts": "expert_bench",
    "one-search": "one_search_bench",
    "rollout": "rollout_bench",
    "overlap": "overlap_bench",
    "scale": "scale_bench",
    "attention": "attention_bench",
    "learning": "learning_study",
    "train": "train_bench",
    "memory": "memory_bench",
    "ui": "ui_bench",
    "search": "search_bench",
    "web": "web_bench",
    "web-load": "web_load",
}


def run_benchmark(name: str, arguments: Sequence[str]) -> None:
    """Run one benchmark with its own arguments (`--help` lists them)."""
    if name in ("-h", "--help"):
        print(f"usage: agentgym bench {'|'.join(_PROGRAMS)} [--help]")
        return
    if name not in _PROGRAMS:
        hint = did_you_mean(name, _PROGRAMS)
        raise ConfigError(f"no benchmark {name!r}{hint}; available: {', '.join(_PROGRAMS)}")
    package = Path(__file__).parents[1]
    installed = package / "benchmarks"
    folder = installed if installed.is_dir() else package.parents[1] / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        program = importlib.import_module(_PROGRAMS[name])
    except ModuleNotFoundError as error:
        if missing_training_package(error):
            raise
        raise ConfigError(
            f"benchmark {name!r} needs {error.name!r}: {install_command('bench')}"
        ) from error
    program.main(arguments)
