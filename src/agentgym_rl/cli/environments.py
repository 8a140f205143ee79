"""`agentgym serve`, `envs`, `play`, `demos` and `check`. Only `demos` needs the extra `train`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agentgym_rl.cli.terminal import announce, in_lines, print_table, suggest
from agentgym_rl.config import EnvConfig, load_config, parse_value
from agentgym_rl.config.recipes import packaged_recipes
from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.envs.tools.described import briefing
from agentgym_rl.errors import AgentGymError, ConfigError, EnvError, boundary
from agentgym_rl.runs.durable import writing_in
from agentgym_rl.types import Task

if TYPE_CHECKING:  # not needed by every command
    from agentgym_rl.envs.demos.demonstration import Demonstration
    from agentgym_rl.envs.service.server.backend import ServerLimits
    from agentgym_rl.serving.bound import Address

RETRIEVER = "searchqa-retriever"
"""The one service that is not an environment: the search engine of deep search."""
_JOINED = "\N{NO-BREAK SPACE}"
"""Keeps a split and its size on one line of a table."""


def run_server(
    env: str, address: Address, limits: ServerLimits, *, num_workers: int, options: Sequence[str]
) -> None:
    """Serve until interrupted."""
    if env == RETRIEVER:
        from agentgym_rl.cli.retrieval import serve_retriever  # only this service needs it

        serve_retriever(address, _parse_options(options))
        return
    from agentgym_rl.envs.access.serve import EnvServer  # only this command needs the HTTP stack

    EnvServer(
        env,
        address,
        options=_parse_options(options),
        num_workers=num_workers,
        limits=limits,
        on_ready=partial(announce, env, address),
    ).run()


def list_environments() -> None:
    """Print every environment, whether it runs here, and its tasks."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in ("runs", "tasks", "rounds", "what"):
        table.add_column(column, overflow="fold")
    missing = list[str]()
    for name in registry.names():
        try:
            cls = registry.env_class(name)
            counts = "built at first use"
            if cls.is_prepared():
                registry.make(name, {}).close()
                sizes = {split: len(cls.tasks(split)) for split in cls.spec.splits}
                counts = ", ".join(f"{split}{_JOINED}{size}" for split, size in sizes.items())
        except (AgentGymError, ValueError) as error:
            table.add_row(name, "no", "", "", "see below")
            missing.append(str(error))
            continue
        table.add_row(name, "yes", counts, str(cls.spec.max_rounds), cls.spec.summary)
    print_table(table)
    for text in missing:
        print(f"{in_lines(text)}\n")
    families = ", ".join(f"{family}/ID" for family in registry.FAMILIES)
    print(f'Other names are {families}, and "module:Class" for a class of your own.')
    suggest(["agentgym", "play", "babyai"], _training_on("NAME"))


def play_environment(env: str, words: Sequence[str], *, index: int | None, split: str) -> None:
    """Let the user act; an empty line lists actions, `?` asks the expert, `q` leaves.

    `words` are options of the environment, key=value.
    """
    options = _parse_options(words)
    with boundary(f"environment {env!r}"):
        cls = registry.configured(registry.env_class(env), options)
        task = _find_task(cls, index, split)
        playing = registry.construct(cls, options)
        first = playing.reset(task)
    kind = " ".join(filter(None, (task.category, task.level)))
    print(f"{briefing(cls.spec)}\n\n[{task.id}: {kind}]")
    print("[an empty line lists actions, ? asks the expert, q leaves]\n")
    print(first)
    try:
        while (action := _ask()) is not None:
            if action == "":
                print("  " + "\n  ".join(playing.available_actions() or ("(not listed)",)))
                continue
            if action == "?":
                print(f"  {playing.expert_action() or '(no expert)'}")
                continue
            with boundary(f"step of {env!r}"):
                result = playing.step(action)
            print(result.observation)
            if result.is_last:
                print(f"[{'success' if result.success else 'over'}, reward {result.reward:.3f}]")
                break
    finally:
        playing.close()


def write_demonstrations(
    wanted: EnvConfig,
    words: Sequence[str],
    *,
    number: int,
    output: Path,
    format_name: str,
    model: str = "",
    seed: int = 0,
    num_processes: int = 0,
) -> None:
    """Write expert demonstrations as conversations in JSON lines; for a model, if one is named.

    They are of tasks that `wanted` lets through, in the proportions of those that its `eval_split`
    has; `words` are options of the environment, key=value.
    """
    # Imported here because conversations are rendered by the training module.
    from agentgym_rl.agents.agent import Agent
    from agentgym_rl.agents.formats import make_format
    from agentgym_rl.config import AgentConfig
    from agentgym_rl.envs.demos.collection import collect_demonstrations
    from agentgym_rl.training.data.conversation_files import to_json_line
    from agentgym_rl.training.data.conversations import from_demonstration

    env, split, options = wanted.name, wanted.split, _parse_options(words)
    with boundary(f"environment {env!r}"):
        cls = registry.configured(registry.env_class(env), options)
        make_format(format_name, cls.spec)
        tasks = _tasks_to_show(cls, wanted, seed)
    _require_writable(output)
    agent = Agent(AgentConfig.model_validate({"format": format_name}), cls.spec)
    if model:
        from agentgym_rl.models.loading import load_renderer  # needs torch

        agent = agent.for_model(load_renderer(model).with_tools(agent.tools))
    demos = collect_demonstrations(
        env,
        tasks,
        num_demos=number,
        max_rounds=4 * cls.spec.max_rounds,
        options=options,
        num_processes=num_processes,
    )
    with closing(demos):
        lines = [
            to_json_line(conversation) + "\n"
            for demo in _shown(demos, number)
            for conversation in from_demonstration(demo, agent)
        ]
    if not lines:
        raise EnvError(f"{env} has no expert that solves a task of split {split!r}")
    output.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} demonstrations of {env} ({split}) in {output}")
    suggest(["agentgym", "train", *_learning_from(env, format_name, output)])


def _learning_from(env: str, format_name: str, file: Path) -> list[str]:
    """Return a recipe that learns from a file of replies in this format, and its settings."""
    ways = {
        f"small/{env}-sft": [f"algorithm.data={file}", "algorithm.num_demos=0"],
        f"qwen_{env}": [f"warm_start.data={file}"],
    }
    for recipe in packaged_recipes():
        if recipe in ways:
            config = load_config(recipe)
            learns = config.algorithm.type == "sft" or config.warm_start.steps
            if learns and config.agent.format == format_name:
                return [recipe, *ways[recipe]]
    return ["RECIPE", "algorithm.type=sft", f"agent.format={format_name}", f"algorithm.data={file}"]


def _shown(demos: Iterable[Demonstration], number: int) -> Iterable[Demonstration]:
    """Show how far they are, in a terminal."""
    screen = Console(stderr=True)
    return track(
        demos,
        "demonstrations",
        number,
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )


def _require_writable(file: Path) -> None:
    """Find out before the work what cannot be written; a stopped command leaves no empty file."""
    is_new = not file.exists()
    with writing_in(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    if is_new:
        file.unlink()


def _tasks_to_show(cls: type[Environment], wanted: EnvConfig, seed: int) -> Sequence[Task]:
    """Return the tasks of a split that `wanted` lets through, in the order in which the expert is
    asked about them."""
    from agentgym_rl.rollout.tasks import select_tasks, spread_tasks  # needs the extra `train`

    cls.require_split(wanted.split)
    tasks = select_tasks(wanted, cls.spec, cls.tasks(wanted.split))
    has_tested = wanted.eval_split in cls.spec.splits
    tested = cls.tasks(wanted.eval_split) if has_tested else tasks
    return spread_tasks(tasks, tested, seed=seed)


def check_environment(env: str, *, num_tasks: int, call_timeout_s: float) -> None:
    """Print what the checker found; exit with 1 when the contract is broken."""
    with Console(stderr=True).status(f"playing tasks of {env}"):
        report = check(env, tasks_per_split=num_tasks, call_timeout_s=call_timeout_s)
    print(f"{report.env}: {report.num_tasks} tasks, {report.num_episodes} episodes, "
          f"{report.num_steps} steps, some replayed in {report.num_processes} fresh processes"
          )  # fmt: skip
    if report.expert_success_rate is not None:
        rate = report.expert_success_rate
        print(f"the expert solves {rate:.1%} within the environment's own limit on rounds")
    elif report.expert_failure:
        print(f"the expert was not asked, because the environment failed: {report.expert_failure}")
    else:
        print("there is no expert (expert_action), which demos and a warm start would need")
    for problem in report.problems:
        print(f"- {problem}")
    if not report.is_ok:
        print(f"{len(report.problems)} law(s) broken; docs/environments.md has the contract")
        raise SystemExit(1)
    print("the contract holds")
    untested = [] if "test" in registry.env_class(env).spec.splits else ["eval.tasks=0"]
    suggest(["agentgym", "play", env], [*_training_on(env), *untested])


def _training_on(env: str) -> list[str]:
    """Return the command that trains on an environment: with a small recipe of its own, or with one
    whose limits suit short texts."""
    for recipe in (f"small/{env}", f"small/{env}-grpo"):
        if recipe in packaged_recipes():
            return ["agentgym", "train", recipe]
    return ["agentgym", "train", "quickstart", f"env.name={env}", "env.levels=[]"]


def _parse_options(words: Sequence[str]) -> dict[str, object]:
    options: dict[str, object] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"option {word!r} is not of the form key=value")
        options[key.strip()] = parse_value(text.strip())
    return options


def _find_task(cls: type[Environment], index: int | None, split: str) -> Task:
    if index is None:
        split = split or _tested_split(cls)
        cls.require_split(split)
        return cls.tasks(split)[0]
    for name in cls.spec.splits:
        for task in cls.tasks(name):
            if task.index == index:
                return task
    known = ", ".join(_indices(split, cls.tasks(split)) for split in cls.spec.splits)
    raise ValueError(f"{cls.spec.name} has no task {index}; it has {known}")


def _tested_split(cls: type[Environment]) -> str:
    """Return the split that is for testing, or an environment's first without one."""
    return "test" if "test" in cls.spec.splits else cls.spec.splits[0]


def _indices(split: str, tasks: Sequence[Task]) -> str:
    """Return which tasks a split has, "test 40000 to 43999"."""
    found = [task.index for task in tasks]
    return f"{split} {min(found)} to {max(found)}" if found else f"{split} none"


def _ask() -> str | None:
    """Return what the user types, None when they leave."""
    try:
        answer = input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    return None if answer == "q" else answer
