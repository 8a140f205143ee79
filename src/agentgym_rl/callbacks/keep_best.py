"""Keeps the model of the best checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from agentgym_rl.callbacks.base import Callback
from agentgym_rl.callbacks.judged import Judged, Mode
from agentgym_rl.config.callbacks import SUCCESS
from agentgym_rl.results import Run
from agentgym_rl.runs.durable import replace_folder
from agentgym_rl.runs.folder import Metrics, RunFolder, step_of

_FACTS = "best.json"


class KeepBest(Callback):
    """Keeps in `model.best/` the model of the checkpoint whose step has the best metric.

    Of equals it is the first. The files are links to those of the checkpoint, so they take no space
    until it is deleted. `best.json` there names the step and the value. A metric of evaluations
    counts for the checkpoints that are of a step with an evaluation.
    """

    def __init__(self, metric: str = SUCCESS, *, mode: Mode = "max") -> None:
        self._name, self._mode = metric, mode

    def on_run_start(self, run: Run) -> None:
        self._judged = Judged.of(run, self._name, self._mode)
        self._folder = run.folder / "model.best"
        self._values = dict(self._judged.history(run))
        files = RunFolder(run.folder)
        latest = files.latest_checkpoint()
        done = step_of(latest.name) if latest is not None else 0
        if self._kept() is not None and self._kept_step() > done:
            shutil.rmtree(self._folder)  # of steps that the run makes again
        for path in sorted(files.checkpoints.glob("step-*"), key=lambda path: step_of(path.name)):
            if step_of(path.name) <= done:
                self.on_checkpoint(path, step_of(path.name))  # a kill may have come before

    def on_step(self, metrics: Metrics) -> None:
        self._judged.refuse_unknown(metrics)
        if self._judged.metric in metrics:
            self._values[int(metrics["step"])] = metrics[self._judged.metric]

    def on_checkpoint(self, path: Path, step: int) -> None:
        value, kept = self._values.get(step), self._kept()
        if value is None or (kept is not None and not self._judged.is_better(value, kept)):
            return
        writing = self._folder.with_name(f".{self._folder.name}.writing")
        shutil.rmtree(writing, ignore_errors=True)
        shutil.copytree(path / "model", writing, copy_function=_link)
        facts = {"step": step, "metric": self._judged.metric, "value": value}
        (writing / _FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")
        replace_folder(writing, self._folder)

    def _kept(self) -> float | None:
        """Return the value of the model that is kept, if it is judged by the same metric."""
        facts = self._facts()
        same = facts is not None and facts["metric"] == self._judged.metric
        return float(str(facts["value"])) if facts is not None and same else None

    def _kept_step(self) -> int:
        facts = self._facts()
        return int(str(facts["step"])) if facts is not None else 0

    def _facts(self) -> dict[str, object] | None:
        try:
            facts = json.loads((self._folder / _FACTS).read_text(encoding="utf-8"))
            return facts if {"step", "metric", "value"} <= facts.keys() else None
        except (OSError, ValueError, AttributeError):
            return None


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where the disk has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
