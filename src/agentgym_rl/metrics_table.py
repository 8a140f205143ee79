"""The metrics of a run as a table: rows are steps, columns are names, and notebooks show it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from agentgym_rl.errors import did_you_mean
from agentgym_rl.runs.folder import Metrics

if TYPE_CHECKING:
    import pandas as pd

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
