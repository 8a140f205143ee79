"""What `train` returns: a run on disk, its metrics, its evaluations and its model.

Everything is read from the run folder when it is asked for, so `Run("runs/my-run")` opens a run of
yesterday, or one that another process is training.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym_rl.config import RunConfig, parse_config, read_table
from agentgym_rl.errors import RunError
from agentgym_rl.evaluation.report import EvalReport, read_reports
from agentgym_rl.metrics_table import MetricsTable
from agentgym_rl.runs.folder import RunFolder

if TYPE_CHECKING:
    from agentgym_rl.models.loading import Policy


class SavedModel(os.PathLike[str]):
    """A model directory, loaded when it is first played and then kept.

    It is a path for transformers, `AutoModelForCausalLM.from_pretrained(run.model)`, and a model
    for `evaluate`, `rollout` and `train`.
    """

    def __init__(self, path: Path, *, dtype: str, device: str) -> None:
        """`dtype` and `device` are as in `[model]`."""
        self.path, self.dtype, self.device = path, dtype, device

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)  # which transformers takes for the name of a model

    def __repr__(self) -> str:
        return f"SavedModel({str(self.path)!r})"

    def load(self) -> Policy:
        """Return the loaded model: `.model` and `.tokenizer` are those of transformers."""
        return self._policy

    @cached_property
    def _policy(self) -> Policy:
        from agentgym_rl.models.loading import load_pretrained  # start-up time: torch

        return load_pretrained(self.path, dtype=self.dtype, device=self.device)


class Run:
    """A run in its folder."""

    def __init__(self, folder: str | os.PathLike[str], config: RunConfig | None = None) -> None:
        """`config` is given where it is known."""
        self.folder, self._config = Path(folder), config
        self._files = RunFolder(self.folder)
        if not self._files.exists:
            raise RunError(f"{self.folder} holds no run (no config.toml)")

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {len(self.metrics)} steps)"

    @cached_property
    def config(self) -> RunConfig:
        """The settings, every default written out.

        A folder is data: of a class that it names no module is imported, and the settings of such
        an algorithm or schedule are not checked.
        """
        if self._config is not None:
            return self._config
        file = self._files.config_file
        table = read_table(file)
        agent = table.get("agent")
        named = agent if isinstance(agent, dict) else {}
        # Said again, the names of an agent and its format are read; whoever plays imports them.
        said = {f"agent.{key}": named[key] for key in ("type", "format") if key in named}
        return parse_config(table, said, source=str(file), is_data=True)

    @property
    def metrics(self) -> MetricsTable:
        """One row per training step so far."""
        return MetricsTable(self._files.read_metrics())

    @property
    def evaluations(self) -> list[EvalReport]:
        """The evaluations so far, the first before the first step."""
        return read_reports(self._files)

    @cached_property
    def model(self) -> SavedModel:
        """The final model; of a run that is not done, that of its newest checkpoint."""
        checkpoint = self._files.latest_checkpoint()
        path = self._files.model
        if not path.is_dir() and checkpoint is not None:
            path = checkpoint / "model"
        if not path.is_dir():
            raise RunError(
                f"the run in {self.folder} has no model yet: no step has been saved; a smaller "
                "checkpoint.every saves earlier"
            )
        model = self.config.model
        return SavedModel(path.resolve(), dtype=model.dtype, device=model.device)
