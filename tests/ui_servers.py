"""The web UI for tests: run folders with known episodes, and a server process over them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # JSON has no static type

import requests

from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import (
    Episode,
    Message,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)
from waiting import ask_until

_PROGRAM = "from agentgym_rl.cli.main import main; main()"
CONFIG = """
[env]
name = "textcraft"
[algorithm]
type = "grpo"
[model]
path = "tiny"
[agent]
format = "react"
[training]
steps = 3
"""


class UiClient:
    """Asks a server; a path is that of a route below /api/."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        self.session = requests.Session()

    def ask(self, path: str, **parameters: object) -> requests.Response:
        return self.session.get(f"{self.url}/api/{path}", params=parameters, timeout=30)

    def get(self, path: str, **parameters: object) -> dict[str, object]:
        """Return the content of an answer that is no error."""
        response = self.ask(path, **parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, **content: object) -> requests.Response:
        return self.session.post(f"{self.url}/api/{path}", json=content, timeout=240)


@contextmanager
def ui_process(runs: Path, *options: str) -> Iterator[UiClient]:
    """Run `agentgym ui` over a folder; give a client of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "ui", str(runs), "--port", "0", "--no-open", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at http" not in line:
            process.terminate()
            raise AssertionError(line + process.communicate()[1])
        yield UiClient(line.split(" at ")[1].split()[0], process.pid)
    finally:
        process.terminate()
        process.wait(30)


def read_whole(
    ui: UiClient, run: str, *, route: str = "episodes", **parameters: object
) -> dict[str, Any]:
    """Return an answer about a run's episodes once all parts of them are read."""
    return ask_until(
        lambda: ui.get(route, run=run, **parameters),
        lambda found: found["index"]["parts_read"] == found["index"]["parts"],
    )


def make_run(folder: Path, *, num_steps: int = 3, config: str = CONFIG) -> RunFolder:
    """Write a run of `num_steps` steps with two groups of two episodes each."""
    run = RunFolder(folder)
    run.create(config)
    for step in range(1, num_steps + 1):
        run.append_metrics(
            {
                "step": step,
                "rollout/success_rate": step / 4,
                "train/entropy": 1.0 / step,
                "time/rollout_s": 2.0,
                "time/update_s": 1.0,
                "time/step_s": 4.0,
            }
        )
        write_episodes(run.episodes, groups_of(step), phase="train", step=step)
    return run


def groups_of(step: int) -> list[list[Episode]]:
    """Return the first group with one success of two, the second with none."""
    return [
        [episode(10 * step, 0, success=True), episode(10 * step, 1, action="look")],
        [episode(10 * step + 1, 0), episode(10 * step + 1, 1)],
    ]


def episode(
    task_index: int,
    sample_index: int,
    *,
    success: bool = False,
    action: str = "get 1 oak log",
    texts: Sequence[str] = (),
) -> Episode:
    """Return an episode of two rounds; `texts` are the observations in place of its own."""
    first, last = texts or ("Goal: craft oak planks.", "Got 1 oak log")
    reply = f"I need wood. Action: {action}"
    return Episode(
        task=Task("textcraft", "train", task_index, category="depth 1"),
        sample_index=sample_index,
        stop_reason=StopReason.SUCCESS if success else StopReason.MAX_ROUNDS,
        reward=1.0 if success else 0.0,
        success=success,
        rounds=(
            Round(reply, action, last, 0.0, valid_action=True),
            Round("mumble", None, "No action found.", float(success), valid_action=False),
        ),
        messages=(
            Message("user", first),
            Message("assistant", reply),
            Message("user", last),
            Message("assistant", "mumble"),
        ),
        samples=(SAMPLE,),
        seconds=0.5 + sample_index,
    )


SAMPLE = Sample(
    token_ids=(5, 8, 31, 2, 9, 7),
    loss_mask=(0, 0, 1, 1, 0, 1),
    logprobs=(0.0, 0.0, -0.5, -1.25, 0.0, -2.0),
    rewards=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    segments=(
        Segment(SegmentKind.PROMPT, 0, 2, 0),
        Segment(SegmentKind.THOUGHT, 2, 3, 0),
        Segment(SegmentKind.ACTION, 3, 4, 0),
        Segment(SegmentKind.OBSERVATION, 4, 5, 0),
        Segment(SegmentKind.ACTION, 5, 6, 1),
    ),
    version=3,
)


def write_lines(file: Path, lines: Sequence[object]) -> None:
    """Write JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
