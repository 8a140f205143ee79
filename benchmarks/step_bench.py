"""`agentgym bench step`: seconds of a whole GRPO step, ours and TRL's with vLLM.

Tasks, prompts, token ids, limits and model are the same: TRL plays our TextCraft (step_trl.py), in
an environment of its own that `--trl-python` names, with vLLM in the same process. One update of
all episodes per step. Ways:

    ours          one process, generation and update by turns
    shared        the same, common beginnings of a group computed once (training.share_prefix)
    overlapped    generation goes on while the learner updates (staleness 1)
    trl-fastest   bfloat16 without masters, no correction, each episode goes on by itself
    trl-defaults  as TRL comes: float32 weights, correction, checkpointed layers, lockstep

Every row is a process of its own, one after another, `--repeats` times. Times are medians over the
steps after `--warm`; the table has the median over repeats and their range. Policies drift apart
as they learn, and with them the tokens of a step, so seconds per 100,000 generated tokens stand
beside the seconds per step. Memory is the most that nvidia-smi saw, of everything on the GPU.

    agentgym bench step --model DIR --trl-python trl/bin/python --rounds 10 20
    agentgym bench step --model DIR --ways ours shared --set engine.cache_fraction=0.2
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench_arguments import whole_from
from rich.console import Console
from rich.table import Table

from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.folder import read_json_lines

OURS = {
    "ours": [],
    "shared": ["training.share_prefix=true"],
    "overlapped": [
        "cluster.type=local",
        "rollout.overlap=true",
        "rollout.max_staleness=1",
        "policy_loss.importance_cap=2",
    ],
}
"""Way -> what differs from the recipe."""
PEERS = ("trl-fastest", "trl-defaults")
_NAMES = {
    "step_s": "time/step_s",
    "rollout_s": "time/rollout_s",
    "update_s": "time/update_s",
    "publish_s": "time/publish_s",
    "tokens": "rollout/tokens",
    "episodes": "rollout/episodes",
    "success": "rollout/success_rate",
    "rounds_mean": "rollout/rounds_mean",
}
"""What is compared -> our metric."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """What every way computes in a step."""

    model: str
    rounds: int
    tasks: int
    group: int
    steps: int
    lr: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: medians over its steps after the first ones."""

    way: str
    rounds: int
    step_s: float
    rollout_s: float
    update_s: float
    publish_s: float
    tokens: float
    episodes: float
    success: float
    rounds_mean: float
    peak_gib: float

    @property
    def s_per_100k(self) -> float:
        """Seconds of a step per 100,000 generated tokens."""
        return 1e5 * self.step_s / self.tokens


def our_words(load: Load, folder: Path, *, way: str, given: Sequence[str]) -> list[str]:
    """Return the command of a run of ours: TextCraft's recipe, held to what TRL does."""
    settings = {
        "model.path": load.model,
        "training.steps": load.steps,
        "training.tasks_per_step": load.tasks,
        "training.updates_per_step": 1,
        "training.warmup_steps": 0,
        "training.lr": load.lr,
        "algorithm.group_size": load.group,
        "rollout.max_concurrency": load.tasks * load.group,
        "rollout.drop_without_spread": "false",
        "rollout.rest_solved": 0,
        "policy_loss.entropy_coef": 0,
        "policy_loss.entropy_target": 0,
        "rounds.type": "fixed",
        "rounds.rounds": load.rounds,
        "eval.tasks": 0,
        "checkpoint.every": 1000,
    }
    words = [f"{key}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "agentgym_rl", "train", "qwen_textcraft"]
    return [*command, *words, *OURS[way], *given, "--run-dir", str(folder)]


def peer_words(load: Load, options: argparse.Namespace, *, way: str) -> list[str]:
    """Return the command of TRL."""
    settings = {
        "model": load.model,
        "way": way.removeprefix("trl-"),
        "steps": load.steps,
        "tasks": load.tasks,
        "group": load.group,
        "rounds": load.rounds,
        "lr": load.lr,
        "per-pass": options.trl_per_pass,
        "attention": options.trl_attention,
        "vllm-memory": options.trl_memory,
    }
    program = Path(__file__).with_name("step_trl.py")
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    return [options.trl_python, str(program), *words]


def measure(load: Load, options: argparse.Namespace, way: str) -> Measured:
    """Run one way. Raises ConfigError where it ends with an error."""
    with tempfile.TemporaryDirectory(prefix="bench-step-") as temporary, gpu_memory() as memory:
        folder = Path(temporary) / "run"
        if way in OURS:
            finished(our_words(load, folder, way=way, given=options.set), way)
            steps = our_steps(folder)
        else:
            steps = peer_steps(finished(peer_words(load, options, way=way), way))
        return summary(way, load.rounds, steps[options.warm :], max(memory, default=0.0))


def finished(words: Sequence[str], way: str) -> str:
    """Return what a command wrote to its output; what it says goes to ours."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{way} failed with status {done.returncode}; see the log above")
    return done.stdout


def our_steps(folder: Path) -> list[dict[str, float]]:
    """Return the steps of a run of ours in the words of this benchmark."""
    lines = read_json_lines(folder / "metrics.jsonl")
    return [{name: line[key] for name, key in _NAMES.items()} for line in lines]


def peer_steps(output: str) -> list[dict[str, float]]:
    """Return the steps that a peer printed among other lines."""
    steps = list[dict[str, float]]()
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and "step_s" in row:
                steps.append(row)
    return steps


def summary(way: str, rounds: int, steps: Sequence[dict[str, float]], peak_gib: float) -> Measured:
    """Return the medians of some steps."""
    if not steps:
        raise ConfigError(f"{way} made no step after the first ones: lower --warm")
    medians = {name: statistics.median(step[name] for step in steps) for name in _NAMES}
    return Measured(way, rounds, peak_gib=peak_gib, **medians)


@contextlib.contextmanager
def gpu_memory() -> Iterator[list[float]]:
    """Collect, while something runs, the GiB in use on the first GPU; nothing without one."""
    found, is_over = list[float](), threading.Event()
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            while not is_over.wait(_POLL_S):
                found.append(float(subprocess.check_output(command)) / 1024)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def spread(values: Sequence[float], digits: int) -> str:
    """Return the median, and the range where there are several."""
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def table_of(rounds: int, rows: Sequence[Measured]) -> Table:
    """Return a table of all ways with one limit on rounds."""
    table = Table(title=f"{rounds} rounds", title_justify="left")
    columns = {
        "s per step": ("step_s", 2),
        "generation": ("rollout_s", 2),
        "update": ("update_s", 2),
        "publication": ("publish_s", 2),
        "s per 100k tokens": ("s_per_100k", 2),
        "tokens": ("tokens", 0),
        "rounds": ("rounds_mean", 1),
        "success": ("success", 3),
        "GiB": ("peak_gib", 0),
    }
    table.add_column("way")
    for name in columns:
        table.add_column(name, justify="right")
    for way in dict.fromkeys(row.way for row in rows):
        here = [row for row in rows if row.way == way]
        cells = [
            spread([getattr(row, key) for row in here], digits)  # one column after another
            for key, digits in columns.values()
        ]
        table.add_row(way, *cells)
    return table


def ratios(rows: Sequence[Measured]) -> Iterator[str]:
    """Yield how many times as fast each way of ours is as each of the peer."""
    for ours in (way for way in OURS if any(row.way == way for row in rows)):
        for peer in (way for way in PEERS if any(row.way == way for row in rows)):
            per_step, per_token = (
                statistics.median(getattr(row, key) for row in rows if row.way == peer)
                / statistics.median(getattr(row, key) for row in rows if row.way == ours)
                for key in ("step_s", "s_per_100k")
            )
            yield (
                f"{ours}: {per_step:.2f} times as fast per step as {peer}, {per_token:.2f} times "
                "per generated token"
            )


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options. Raises ConfigError where they contradict each other."""
    parser = argparse.ArgumentParser(
        prog="agentgym bench step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, help="a directory with weights, which both read")
    add("--ways", nargs="+", choices=[*OURS, *PEERS], help="default: all that can run")
    add("--rounds", nargs="+", type=whole_from(1), default=[10], help="limits on rounds")
    add("--tasks", type=whole_from(1), default=32, help="of a step")
    add("--group", type=whole_from(2), default=8, help="episodes of a task")
    add("--steps", type=whole_from(2), default=8, help="of each run; default: 8")
    add("--warm", type=whole_from(1), default=3, help="first steps left out; default: 3")
    add("--repeats", type=whole_from(1), default=3, help="runs of each way; default: 3")
    add("--lr", type=float, default=5e-6, help="learning rate; default: 5e-6")
    add("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of our runs")
    add("--trl-python", default="", help="Python of an environment with TRL, vLLM and this package")
    add("--trl-per-pass", type=whole_from(1), default=8, help="sequences of a pass of TRL")
    add("--trl-attention", default="sdpa", help="as transformers names it")
    add("--trl-memory", type=float, default=0.25, help="share of the GPU for its vLLM")
    add("--json", type=Path, help="add a line for each run to this file")
    options = parser.parse_args(list(arguments))
    if not Path(options.model).is_dir():
        raise ConfigError(f"--model {options.model} is not a folder; both sides read one")
    options.ways = options.ways or [*OURS, *(PEERS if options.trl_python else ())]
    asked = [way for way in options.ways if way in PEERS]
    if asked and not options.trl_python:
        raise ConfigError(f"{asked[0]} needs --trl-python, an environment with TRL and vLLM")
    if asked and options.tasks * options.group % options.trl_per_pass:
        raise ConfigError(
            f"--trl-per-pass {options.trl_per_pass} does not divide the "
            f"{options.tasks * options.group} episodes of a step"
        )
    if options.warm >= options.steps:
        raise ConfigError(f"--warm {options.warm} leaves out all of --steps {options.steps}")
    return options


def main(arguments: Sequence[str]) -> None:
    options, console = options_of(arguments), Console(soft_wrap=True)
    for rounds in options.rounds:
        load = Load(options.model, rounds, options.tasks, options.group, options.steps, options.lr)
        rows = list[Measured]()
        for _ in range(options.repeats):  # what changes with time changes for all ways alike
            for way in options.ways:
                rows.append(measure(load, options, way))
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(asdict(rows[-1])) + "\n")
        console.print(table_of(rounds, rows))
        for line in ratios(rows):
            console.print(line)
