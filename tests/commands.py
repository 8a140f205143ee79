"""`agentgym` commands for tests: each in a process of its own, which can be killed.

The process is forked from one that has imported torch already, so that a test can afford many.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from agentgym_rl.cli.main import main

_FORKS = multiprocessing.get_context("forkserver")
# The command line imports these when it needs them; a fork should find them there.
_FORKS.set_forkserver_preload(
    [
        "agentgym_rl.experiment",
        "agentgym_rl.cli.evaluate",
        "agentgym_rl.cli.train",
        "agentgym_rl.evaluation.curve",
        "agentgym_rl.envs.scenarios.babyai.env",
        "agentgym_rl.training.learner.sharded.ranks",
        "peft",
    ]
)
_WRITES = {"open", "os.rename", "os.remove", "os.symlink", "os.mkdir", "shutil.rmtree"}
DEADLINE_S = 240.0
"""For any command; far more than one takes, because the machine may be busy."""


@dataclass(frozen=True)
class Kill:
    """A signal right before the `number`-th change of a file that `pattern` matches.

    The process sends it to itself, so that it comes then however slow the test's own process is.
    """

    pattern: str
    number: int = 1
    with_signal: signal.Signals = signal.SIGKILL


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class Command:
    """One `agentgym` command line, running; `stdin` is what the user of a terminal types."""

    def __init__(
        self,
        *words: object,
        stdin: str = "",
        folder: Path | None = None,
        columns: int = 80,
        kill: Kill | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        # Its processes inherit it: threads only get in each other's way on a model of this size.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._streams = tempfile.TemporaryDirectory(prefix="command-")
        streams = Path(self._streams.name)
        (streams / "0").write_text(stdin, encoding="utf-8")
        self.process: BaseProcess = _FORKS.Process(
            target=_run_command,
            args=(
                [*map(str, words)],
                streams,
                folder or Path.cwd(),
                columns,
                kill,
                {**os.environ, **(env or {})},  # the server of forks has one from before
            ),
        )
        self.process.start()

    def wait(self, timeout_s: float = DEADLINE_S) -> Outcome:
        """Return how the command ended; one that does not end fails the test."""
        self.process.join(timeout_s)
        is_stuck = self.process.is_alive()
        self.process.kill()
        self.process.join()
        with self._streams as streams:
            files = (Path(streams) / name for name in "12")
            texts = [file.read_text("utf-8") if file.exists() else "" for file in files]
        outcome = Outcome(self.process.exitcode, *texts)
        assert not is_stuck, f"the command did not end:\n{outcome.output}"
        return outcome


def agentgym(*words: object, stdin: str = "", folder: Path | None = None) -> Outcome:
    """Run a command line to its end."""
    return Command(*words, stdin=stdin, folder=folder).wait()


def _run_command(
    words: list[str],
    streams: Path,
    folder: Path,
    columns: int,
    kill: Kill | None,
    env: dict[str, str],
) -> None:
    """What the process does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests' own may ignore it
    os.dup2(os.open(streams / "0", os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(os.open(streams / str(number), os.O_WRONLY | os.O_CREAT), number)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - as long as the process
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env, COLUMNS=str(columns))
    if kill is not None:
        arm(kill)
    sys.argv = ["agentgym", *words]
    main()


def arm(kill: Kill) -> None:
    """Let the kill come to this process."""
    pattern, left = re.compile(kill.pattern), kill.number

    def watch(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        if event not in _WRITES or not isinstance(args[0], str | os.PathLike):
            return
        is_reading = event == "open" and not int(str(args[2])) & (os.O_WRONLY | os.O_RDWR)
        if not is_reading and pattern.search(f"{event} {os.fspath(args[0])}"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), kill.with_signal)

    sys.addaudithook(watch)
