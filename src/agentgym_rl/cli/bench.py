"""`agentgym bench`: runs the programs of the folder `benchmarks`, which have their own options."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentgym_rl.errors import (
    ConfigError,
    did_you_mean,
    install_command,
    missing_training_package,
)

_PROGRAMS = {
    "env": ("env_bench", "environment servers under load, beside their baselines"),
    "soak": ("env_soak", "an environment server over many episodes: whether it leaks"),
    "experts": ("expert_bench", "how many tasks the experts solve"),
    "one-search": ("one_search_bench", "deep search with no search, and with one"),
    "rollout": ("rollout_bench", "how fast an engine generates"),
    "step": ("step_bench", "whole GRPO steps, beside TRL with vLLM"),
    "overlap": ("overlap_bench", "steps with and without rollout.overlap"),
    "scale": ("scale_bench", "steps with other numbers of engines and GPUs"),
    "attention": ("attention_bench", "the attention kernel of a paged cache"),
    "learning": ("learning_study", "one task learned in several ways, over several seeds"),
    "train": ("train_bench", "updates of the learner: time and memory"),
    "memory": ("memory_bench", "a training run: whether its memory grows"),
    "ui": ("ui_bench", "the web UI on a run of 100,000 episodes"),
    "search": ("search_bench", "the search engine of deep search"),
    "web": ("web_bench", "every template of web in a real browser"),
    "web-load": ("web_load", "many episodes of web at once"),
}
"""Name -> the program in `benchmarks`, what it measures."""
_HELP = """Usage: agentgym bench NAME [OPTIONS]

  Measure the project against named baselines.

Arguments:
{names}

  Each has options of its own, which `agentgym bench NAME --help` lists.

  Examples:
    agentgym bench ui --parts 100
    agentgym bench env --env textcraft --json found.json
    agentgym bench rollout --help"""


def run_benchmark(name: str, arguments: Sequence[str]) -> None:
    """Run one benchmark with its own arguments (`--help` lists them)."""
    if name in ("-h", "--help"):
        print(_HELP.format(names="\n".join(_name_lines())))
        return
    if name not in _PROGRAMS:
        hint = did_you_mean(name, _PROGRAMS)
        raise ConfigError(f"no benchmark {name!r}{hint}; available: {', '.join(_PROGRAMS)}")
    package = Path(__file__).parents[1]
    installed = package / "benchmarks"
    folder = installed if installed.is_dir() else package.parents[1] / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        program = importlib.import_module(_PROGRAMS[name][0])
    except ModuleNotFoundError as error:
        if missing_training_package(error):
            raise
        raise ConfigError(
            f"benchmark {name!r} needs {error.name!r}: {install_command('bench')}"
        ) from error
    program.main(arguments)


def _name_lines() -> Iterator[str]:
    return (f"  {name:<11} {what[:1].upper()}{what[1:]}." for name, (_, what) in _PROGRAMS.items())
