"""Weights & Biases, online or offline (also where nobody is logged in).

Online, the run is found again by its id, and W&B says which step it has next. Offline, a run that
resumes writes its folder anew from metrics.jsonl, so that one `wandb sync` uploads all of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import wandb

from agentgym_rl.tracking.base import (
    NOTHING_YET,
    Entry,
    SampleEpisode,
    TrackedRun,
    Tracker,
    is_small,
)

Mode = Literal["online", "offline", "disabled", "shared"]


class WandbTracker(Tracker):
    """Sends to W&B, with its own settings from the environment (WANDB_ENTITY, WANDB_MODE ...)."""

    def open(self, run: TrackedRun) -> int:
        mode, is_asked_for = _mode()
        if not is_asked_for:
            files = run.own_files / "wandb" / f"offline-run-*-{run.id}"
            self.note = f"not logged in, so the run is kept offline; upload it: wandb sync {files}"
        for folder in (run.own_files / "wandb").glob(f"offline-run-*-{run.id}"):
            if mode == "offline":
                shutil.rmtree(folder)
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.id,
            resume="allow",
            dir=run.own_files,
            config=dict(run.settings),
            mode=mode,
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, finish_timeout=60
            ),
        )
        self._run.define_metric("*", step_metric="step")
        return self._run.starting_step - 1 if mode == "online" else NOTHING_YET

    def log(self, entry: Entry) -> None:
        row: dict[str, object] = {"step": entry.step, **entry.numbers}
        if entry.episodes:
            rows = [episode.row() for episode in entry.episodes]
            row["episodes"] = wandb.Table(columns=list(SampleEpisode.columns()), data=[*rows])
        pictures = [
            wandb.Image(str(episode.picture), caption=f"{episode.task}: {episode.goal[-200:]}")
            for episode in entry.episodes
            if episode.picture
        ]
        if pictures:
            row["pictures"] = pictures
        self._run.log(row, step=entry.step, commit=True)

    def finish(self, model: Path | None) -> None:
        if model is not None:
            self._run.summary["model"] = str(model.resolve())
            if is_small(model):
                artifact = wandb.Artifact(f"model-{self._run.id}", type="model")
                artifact.add_dir(str(model))
                self._run.log_artifact(artifact)
        self._run.finish()


def _mode() -> tuple[Mode, bool]:
    """Return the mode, and whether the user set it: without a key to log in with it is offline."""
    given = wandb.setup().settings.mode
    if given == "disabled" or given == "shared":
        return given, True
    if given not in ("online", "run"):
        return "offline", True
    try:
        return ("online", True) if wandb.login() else ("offline", False)
    except wandb.errors.UsageError:
        return "offline", False
