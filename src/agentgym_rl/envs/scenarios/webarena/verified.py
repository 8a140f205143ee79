"""Scores by the package webarena-verified, in a process of its own: `VerifiedScorer`.

The package holds pydantic at a version that this project may not have, so it runs in whichever
Python has it. One process serves all episodes of this one; a scoring takes milliseconds, the first
one seconds. A process that hangs or dies fails the episode that waited for it, and is replaced.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from agentgym_rl.browser.recording import Entry
from agentgym_rl.envs.scenarios.webarena.package import PACKAGE, REMEDY, python_of
from agentgym_rl.errors import EnvError, EnvTimeoutError

_PROGRAM = Path(__file__).with_name("verified_program.py")
_START_S = 120.0
_SCORE_S = 60.0


class VerifiedScorer:
    """Asks the package. Safe for many threads, one after another. Make one with `scorer_for`."""

    def __init__(self, python: str, addresses: tuple[tuple[str, str], ...]) -> None:
        self._python = python
        self._addresses = dict(addresses)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def score(self, index: int, answer: str, entries: Sequence[Entry]) -> float:
        """Return what the package gives an answer and what was recorded.

        Raises EnvError when it cannot say.
        """
        episode = {"task": index, "answer": answer, "entries": entries}
        with self._lock:
            said = self._ask(self._running(), episode, _SCORE_S)
        if said["error"]:
            raise EnvError(f"{PACKAGE} cannot score task {index}: {said['error']}")
        return float(str(said["score"]))

    def close(self) -> None:
        """End the process. Safe to repeat."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # what it never read is not written either
                        stream.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        with tempfile.TemporaryFile("w+") as errors:
            self._process = subprocess.Popen(
                [python_of(self._python), "-I", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
            try:
                self._ask(self._process, self._addresses, _START_S)
            except EnvError as error:
                errors.seek(0)
                last = errors.read().strip().splitlines()[-1:] or ["no message"]
                raise EnvError(f"{PACKAGE} does not start: {last[0]}; {REMEDY}") from error
        return self._process

    def _ask(
        self, process: subprocess.Popen[str], message: Mapping[str, object], limit_s: float
    ) -> Mapping[str, object]:
        """Send one line and return the answer; a process that gives none is ended."""
        assert process.stdin is not None and process.stdout is not None
        watch = threading.Timer(limit_s, process.kill)
        watch.start()
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            is_late = not watch.is_alive()
            watch.cancel()
        if not line:
            self.close()
            if is_late:
                raise EnvTimeoutError(f"{PACKAGE} did not answer within {limit_s:g} s")
            raise EnvError(f"the process of {PACKAGE} ended")
        found: Mapping[str, object] = json.loads(line)
        return found


@cache
def scorer_for(python: str, addresses: tuple[tuple[str, str], ...]) -> VerifiedScorer:
    """Return this process's scorer for these sites."""
    return VerifiedScorer(python, addresses)
