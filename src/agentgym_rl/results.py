"""What `train` returns: a run on disk, its metrics, its evaluations and its model.

Everything is read from the run folder when it is asked for, so `Run("runs/my-run")` opens a run of
yesterday, or one that another process is training.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

from agentgym_rl.config import RunConfig, parse_config, read_table
from agentgym_rl.config.load import named_agents
from agentgym_rl.errors import RunError, did_you_mean
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.runs.folder import Metrics, RunFolder, no_run_in

if TYPE_CHECKING:
    import pandas as pd

    from agentgym_rl.models.loading import Policy

_SHOWN = (
    "step",
    "rollout/success_rate",
    "rollout/reward_mean",
    "rollout/rounds_mean",
    "train/loss",
    "train/entropy",
    "train/grad_norm",
    "time/step_s",
)
"""What is shown of some dozens of columns; evaluations follow."""
_MAX_ROWS = 20


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
            raise RunError(no_run_in(self.folder))

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
        # Said again, the names of an agent and its format are read; whoever plays imports them.
        return parse_config(table, named_agents(table), source=str(file), is_data=True)

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


class MetricsTable(Sequence[Metrics]):
    """One row per training step, in order.

    table[0]                the first step, a dictionary
    table["train/loss"]     a column, one number per step; NaN where a step does not have it
    table.columns           all names
    table.to_pandas()       a data frame with the step as index, where pandas is installed
    """

    def __init__(self, rows: Sequence[Metrics]) -> None:
        self._rows = list(rows)
        self.columns = tuple(dict.fromkeys(name for row in self._rows for name in row))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Metrics]:
        return iter(self._rows)

    @overload
    def __getitem__(self, key: int) -> Metrics: ...
    @overload
    def __getitem__(self, key: slice) -> MetricsTable: ...
    @overload
    def __getitem__(self, key: str) -> list[float]: ...
    def __getitem__(self, key: int | slice | str) -> Metrics | MetricsTable | list[float]:
        if isinstance(key, str):
            return self._column(key)
        return MetricsTable(self._rows[key]) if isinstance(key, slice) else self._rows[key]

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame. Raises ModuleNotFoundError where pandas is not installed."""
        try:
            import pandas as pd  # optional, and slow to import
        except ModuleNotFoundError as error:
            error.add_note("install it with: pip install pandas; a column needs no pandas")
            raise
        return pd.DataFrame(self._rows, columns=list(self.columns)).set_index("step")

    def __repr__(self) -> str:
        table = self._shown()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.rjust, line, widths)) for line in table]
        return "\n".join([*lines, self._size])

    def _repr_html_(self) -> str:
        """Return the table as notebooks show it."""
        rows = [
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
            for line in self._shown()
        ]
        return f"<table>{''.join(rows)}</table><p>{self._size}</p>"

    def _column(self, name: str) -> list[float]:
        if name not in self.columns:
            hint = did_you_mean(name, self.columns)
            raise KeyError(f"the run has no metric {name!r}{hint}; `columns` lists all")
        return [row.get(name, math.nan) for row in self._rows]

    def _shown(self) -> list[list[str]]:
        """Return a line of names, and the rows (of many, the first and the last ones)."""
        evaluations = [name for name in self.columns if name.endswith("/success_rate")]
        names = list(dict.fromkeys(n for n in (*_SHOWN, *evaluations) if n in self.columns))
        rows, half = self._rows, _MAX_ROWS // 2
        ends = rows if len(rows) <= _MAX_ROWS else [*rows[:half], *rows[-half:]]
        return [names, *([f"{row[n]:.4g}" if n in row else "" for n in names] for row in ends)]

    @property
    def _size(self) -> str:
        return f"{len(self)} steps, {len(self.columns)} columns"
