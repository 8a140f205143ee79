"""The run folder: where everything that a run leaves behind is, and how it is written.

    config.toml          resolved configuration
    run.json             how it stands, and which recipe it is of (record.py)
    metrics.jsonl        one JSON object per training step
    episodes/            Parquet parts, one row per episode
    checkpoints/step-N/  everything needed to resume; `latest` points at the newest complete one
    tokenizer/           the tokenizer of the episodes' token ids
    model/               the final model, with its card
    model.best/          the model of the best checkpoint
    tracking/            what trackers keep of the run
    eval/                reports
    warm_start/          the supervised run before this one, also a run folder
    iterations/step-N/   what each iteration of AgentEvol learned from, and its model
    data.sha256          a fingerprint of the demonstrations of SFT or AgentEvol
    iterations/base.pt   the weights that they begin with, where each one restarts
    reference_scores.pt  in preference learning, the log-probabilities of the first weights

Whatever is replaced is written beside its place, synced to the disk and then renamed, so that a
reader, or a run that resumes after a kill or a crash of its machine, never meets half a file.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.errors import RunError, some_of
from agentgym_rl.runs.durable import put_in_place, replace_folder, restore_folders, writing_in
from agentgym_rl.runs.regular_files import open_regular

Metrics = dict[str, float]


class RunFolder:
    """Paths and writers of one run. One process writes at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.lock_file = path / ".lock"
        self.metrics_file = path / "metrics.jsonl"
        self.episodes = path / "episodes"
        self.checkpoints = path / "checkpoints"
        self.tokenizer = path / "tokenizer"
        self.model = path / "model"
        self.eval = path / "eval"
        self.warm_start = path / "warm_start"
        self.iterations = path / "iterations"
        self.data_fingerprint = path / "data.sha256"
        self.base_weights = self.iterations / "base.pt"
        self.reference_scores = path / "reference_scores.pt"

    @property
    def exists(self) -> bool:
        return self.config_file.exists()

    @property
    def is_begun(self) -> bool:
        """Whether there is anything to lose; a run that failed at its start left its recipe."""
        traces = (self.metrics_file, self.warm_start, self.checkpoints, self.eval, self.model)
        return any(trace.exists() for trace in traces)

    def create(self, config_text: str) -> None:
        """Make the folder of a new run; refuses one that holds a run already."""
        self.refuse_begun()
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config_file, config_text)

    def refuse_begun(self) -> None:
        """Raise RunError where there is a run already."""
        if self.is_begun:
            choice = "resume it (--resume, in Python resume=True)"
            if not self.exists:
                choice = "put its config.toml back"
            raise RunError(f"{self.path} holds a run already: {choice}, or name another folder")

    def create_for_stored(self, config_text: str) -> None:
        """Make the folder for episodes that were recorded before; refuses one that holds any."""
        if self.is_begun or self.episodes.exists():
            raise RunError(f"{self.path} holds a run already; name another folder")
        self.create(config_text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing here; freed by the system when the process dies."""
        with writing_in(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self.lock_file.open("w")
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.path} is in use by another process") from None
            for folder in (self.path, self.checkpoints):
                restore_folders(folder)
            yield

    def append_metrics(self, metrics: Mapping[str, float]) -> None:
        """Add the line of one step."""
        with self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[Metrics]:
        """Return the lines of all steps; half a line at the end, left by a kill, is not read."""
        return read_json_lines(self.metrics_file)

    def forget_after(self, step: int) -> list[Metrics]:
        """Remove what was written of steps after `step`, which a resumed run makes again.

        Returns their lines of metrics.
        """
        lines = self.read_metrics()
        kept = [line for line in lines if line["step"] <= step]
        write_atomically(self.metrics_file, "".join(json.dumps(line) + "\n" for line in kept))
        for folder, pattern in ((self.episodes, "*.parquet"), (self.eval, "step-*.*")):
            for file in folder.glob(pattern) if folder.is_dir() else ():
                if step_of(file.stem) > step:
                    file.unlink()
        for folder in self.iterations.glob("step-*"):
            if step_of(folder.name) > step:
                shutil.rmtree(folder)
        return [line for line in lines if line["step"] > step]

    def iteration_path(self, step: int) -> Path:
        return self.iterations / f"step-{step}"

    def checkpoint_path(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}"

    def latest_checkpoint(self) -> Path | None:
        """Return the checkpoint that `latest` points at, or where it is lost the newest."""
        latest = self.checkpoints / "latest"
        if latest.exists():
            return latest.resolve()
        numbered = self._numbered_checkpoints()
        return numbered[-1] if numbered else None

    def complete_checkpoint(self, written: Path, step: int, *, keep: int) -> Path:
        """Give a finished checkpoint its name, point `latest` at it, and drop old ones."""
        final = self.checkpoint_path(step)
        replace_folder(written, final)
        link = self.checkpoints / ".latest"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        put_in_place(link, self.checkpoints / "latest")
        numbered = self._numbered_checkpoints()
        # A later one was left by a kill before `latest` pointed at it; this one takes its place.
        kept = [path for path in numbered if step_of(path.name) <= step][-keep:]
        for path in numbered:
            if path not in kept:
                shutil.rmtree(path)
        return final

    def _numbered_checkpoints(self) -> list[Path]:
        """Return all checkpoints in order; each got its name when it was complete."""
        return sorted(self.checkpoints.glob("step-*"), key=lambda path: step_of(path.name))


def no_run_in(path: Path) -> str:
    """Return what to say of a path at which there is no run, with the nearest one beside it."""
    if path.is_dir():
        inner = sorted(file.parent.name for file in path.glob("*/config.toml"))
        remedy = f"; name one of its runs: {some_of(inner)}" if inner else ""
        return f"{path} holds no run (no config.toml){remedy}"
    beside = [file.parent.name for file in path.parent.glob("*/config.toml")]
    near = difflib.get_close_matches(path.name, beside, n=1)
    hint = f" (did you mean {str(path.with_name(near[0]))!r}?)" if near else ""
    where = "" if path.parent.name in ("", "runs") else f" {path.parent}"
    return f"there is no folder {path}{hint}; `agentgym runs{where}` lists runs"


def step_of(name: str) -> int:
    """Return the number at the end of "step-12" or "train-000012"."""
    return int(name.rsplit("-", 1)[1])


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.writing")  # one process writes a folder at a time
    with writing_in(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8") as file:  # not through a link that lies there
            file.write(text)
        put_in_place(temporary, path)


def read_json_lines(path: Path) -> list[Metrics]:
    """Return the objects of a JSON-lines file up to the first line that is not whole."""
    lines: list[Metrics] = []
    if path.exists():
        with open_regular(path.resolve()) as file:
            text = file.read().decode("utf-8")
        for line in text.splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return lines
