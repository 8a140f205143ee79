"""`agentgym bench experts`: how many tasks the experts solve, and which they do not.

The same number of tasks of every level, spread evenly over all splits, are played by the
environment's own expert without a limit on rounds other than ten times `spec.max_rounds`. With
`--recipe` these are the tasks that the recipe evaluates on, within its limit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import closing

from bench_arguments import whole_from
from rich.console import Console

from agentgym_rl.config import load_config
from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.demos.demonstration import demonstrate
from agentgym_rl.errors import ConfigError
from agentgym_rl.rollout.tasks import evaluation_tasks, select_tasks
from agentgym_rl.types import Task

SCENARIOS = ("textcraft", "textcraft_generated", "babyai", "sciworld", "searchqa")


def choose(cls: type[Environment], *, per_level: int) -> list[Task]:
    """Return tasks of every level, evenly spread; of every category where levels are unique."""
    tasks = sorted(
        (task for split in cls.spec.splits for task in cls.tasks(split)),
        key=lambda task: task.index,
    )
    names = {task.level for task in tasks}
    by_name: dict[str, list[Task]] = {}
    for task in tasks:
        key = task.category if len(names) > len(tasks) // 2 else task.level
        by_name.setdefault(key, []).append(task)
    chosen: list[Task] = []
    for listed in by_name.values():
        number = min(per_level, len(listed))
        chosen += [listed[len(listed) * place // number] for place in range(number)]
    return chosen


def measure(env: Environment, tasks: Sequence[Task], max_rounds: int, console: Console) -> None:
    """Play and report tasks of one environment."""
    lengths: list[int] = []
    unsolved: list[str] = []
    started = time.process_time()
    for task in tasks:
        demo = demonstrate(env, task, max_rounds=max_rounds)
        if demo is None:
            unsolved.append(f"{task.id} ({task.level or task.category})")
        else:
            lengths.append(len(demo.actions))
    solved, rounds = len(lengths), ""
    if lengths:
        rounds = f"rounds median {statistics.median(lengths):.0f}, longest {max(lengths)}, "
    console.print(
        f"{env.spec.name}: {solved} of {len(tasks)} tasks solved ({solved / len(tasks):.1%}), "
        f"{rounds}{time.process_time() - started:.0f} CPU-seconds"
    )
    if unsolved:
        console.print(f"  not solved: {', '.join(unsolved)}")


def measure_scenario(name: str, per_level: int, console: Console) -> None:
    """Play tasks of every level."""
    cls = registry.env_class(name)
    with closing(registry.make(name, {})) as env:
        measure(env, choose(cls, per_level=per_level), 10 * cls.spec.max_rounds, console)


def measure_recipe(name: str, console: Console) -> None:
    """Play the held-out tasks of a recipe."""
    config = load_config(name)
    if not config.eval.tasks:
        raise ConfigError(f"{name} evaluates on no tasks (eval.tasks=0)")
    cls = registry.env_class(config.env.name)
    tasks = select_tasks(config.env, cls.spec, list(cls.tasks(config.env.eval_split)))
    tasks = evaluation_tasks(tasks, config.eval.tasks, seed=config.seed)
    with closing(registry.make(config.env.name, config.env.options)) as env:
        measure(env, tasks, config.eval_max_rounds, console)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench experts", description="The experts.")
    parser.add_argument("--env", action="append", choices=SCENARIOS, help="default: all")
    parser.add_argument("--per-level", type=whole_from(1), default=10, help="tasks of every level")
    parser.add_argument(
        "--recipe", help="a recipe's held-out tasks instead, within its limit on rounds"
    )
    chosen = parser.parse_args(arguments)
    if chosen.recipe:
        measure_recipe(chosen.recipe, Console())
        return
    for scenario in chosen.env or SCENARIOS:
        measure_scenario(scenario, chosen.per_level, Console())


if __name__ == "__main__":
    main()
