"""Training runs for tests: a small recipe, `agentgym train` with it, and comparisons."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.runs.folder import Metrics, read_json_lines
from agentgym_rl.types import StepResult, Task
from commands import Command, Kill, Outcome

RECIPE = """
seed = 0

[env]
name = "babyai"
levels = ["GoToRedBallNoDists"]

[model]
path = "tiny"
device = "cpu"
tiny = { vocab_size = 320, hidden_size = 32, num_layers = 1 }

[agent]
format = "direct"
include_instructions = false

[rollout]
max_tokens_per_round = 12
max_tokens = 512

[warm_start]
steps = 20
num_demos = 24
batch_size = 16
lr = 1e-2

[algorithm]
type = "grpo"
group_size = 4

[rounds]
type = "scaling_inter_stepwise"
rounds = [2, 3]
steps_per_stage = 4

[training]
steps = 8
tasks_per_step = 2
lr = 5e-4

[checkpoint]
every = 2

[eval]
every = 4
tasks = 4
"""


class FlakyBabyAI(BabyAI):
    """Two of five objects break at some point of their episode, each in its own way."""

    _lock, _rng = threading.Lock(), random.Random(0)

    def __init__(self) -> None:
        super().__init__()
        with self._lock:
            self._trouble = self._rng.choice(["raise", "hang", "exit", "reset", *["none"] * 6])
            self._round = self._rng.randrange(2)

    def reset(self, task: Task) -> str:
        if self._trouble == "reset":
            raise OSError("the world is closed")
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        self._round -= 1
        if self._round < 0 and self._trouble != "none":
            if self._trouble == "hang":
                time.sleep(3600)
            raise SystemExit(3) if self._trouble == "exit" else KeyError("the world is broken")
        return super().step(action)


STOP_AT = "stop-at-reset"
"""A file where the command runs, with the number of the reset at which its process is stopped."""


class StoppingBabyAI(BabyAI):
    """Sends SIGTERM to its process, as a machine does that is taken away."""

    _num_resets = itertools.count(1)

    def reset(self, task: Task) -> str:
        number, file = next(self._num_resets), Path(STOP_AT)
        if file.exists() and number == int(file.read_text()):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().reset(task)


KILL_MARK = "KILL_MARK"
"""The environment variable that names a file: the step that finds it kills its server."""


class KillingBabyAI(BabyAI):
    """Kills the server whose worker it is in, in the middle of an episode, once for each mark."""

    def step(self, action: str) -> StepResult:
        with suppress(KeyError, FileNotFoundError):
            os.unlink(os.environ[KILL_MARK])
            os.kill(os.getppid(), signal.SIGKILL)
        return super().step(action)


class MarkedBabyAI(BabyAI):
    """Kills its process in the middle of an episode, once for each time that the mark is made."""

    def __init__(self, *, mark: str = "") -> None:
        super().__init__()
        self._mark = mark

    def step(self, action: str) -> StepResult:
        with suppress(FileNotFoundError):
            os.unlink(self._mark)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def train(*arguments: object, kill: Kill | None = None) -> Outcome:
    return Command("train", *arguments, kill=kill).wait()


def go_on(path: Path, *arguments: object, kill: Kill | None = None) -> Outcome:
    return train("--run-dir", path, "--resume", *arguments, kill=kill)


def succeeded(outcome: Outcome) -> bool:
    assert outcome.status == 0, outcome.output
    return True


def refused(outcome: Outcome, *told: str) -> bool:
    """Whether the command ended with status 2 and one line that says what is wrong."""
    return ended(outcome, 2, *told)


def interrupted(outcome: Outcome, *told: str) -> bool:
    """Whether Ctrl-C ended the command, with one line that says how to resume."""
    return ended(outcome, 130, *told)


def ended(outcome: Outcome, status: int, *told: str) -> bool:
    """Whether the command ended with a status and one line that says why."""
    assert outcome.status == status, outcome.output
    assert "Traceback" not in outcome.output
    errors = [line for line in outcome.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and outcome.output.rstrip().endswith(errors[0]), outcome.output
    assert all(text in errors[0] for text in told), errors[0]
    return True


def metrics_of(path: Path, *, without: tuple[str, ...] = ()) -> list[Metrics]:
    """Return the metrics of a run without what the clock says, and without some keys."""
    clock = ("time/", "rollout/tokens_per_s", "train/tokens_per_s", "train/mfu", *without)
    lines = read_json_lines(path / "metrics.jsonl")
    return [{k: v for k, v in line.items() if not k.startswith(clock)} for line in lines]


def episodes_of(path: Path) -> list[dict[str, Any]]:  # Any: Parquet knows the types
    """Return every episode of a run without how long it took."""
    rows: list[dict[str, Any]] = []
    for file in sorted((path / "episodes").glob("*.parquet")):
        rows += pq.read_table(file).drop_columns("seconds").to_pylist()
    for round_ in (round_ for row in rows for round_ in row["rounds"]):
        del round_["generation_s"], round_["environment_s"]
    return rows


def visible_files(path: Path) -> set[str]:
    files = (file.relative_to(path) for file in path.rglob("*"))
    return {str(file) for file in files if not any(part.startswith(".") for part in file.parts)}


def is_the_same_run(path: Path, other: Path) -> bool:
    """Whether two folders hold the same run, to the last bit."""
    assert metrics_of(path) == metrics_of(other)
    assert metrics_of(path / "warm_start") == metrics_of(other / "warm_start")
    assert episodes_of(path) == episodes_of(other)
    assert visible_files(path) == visible_files(other)
    for file in ("model/model.safetensors", "model/tokenizer.json", "config.toml"):
        assert (path / file).read_bytes() == (other / file).read_bytes(), file
    for name in visible_files(path / "eval"):
        assert (path / "eval" / name).read_text() == (other / "eval" / name).read_text(), name
    return True
