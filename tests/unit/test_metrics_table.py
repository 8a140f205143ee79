"""The table of a run's metrics."""

from __future__ import annotations

import math
import sys

import pytest

from agentgym_rl.results import MetricsTable

ROWS = [
    {"step": 1, "train/loss": 0.5, "rollout/success_rate": 0.25},
    {"step": 2, "train/loss": 0.25, "rollout/success_rate": 0.5, "eval/x/success_rate": 1.0},
]


def test_rows_columns_and_slices():
    table = MetricsTable(ROWS)
    assert len(table) == 2 and table[0] == ROWS[0] and list(table) == ROWS
    assert table["train/loss"] == [0.5, 0.25]
    evaluated = table["eval/x/success_rate"]
    assert math.isnan(evaluated[0]) and evaluated[1] == 1.0
    assert table[1:]["step"] == [2]


def test_a_missing_column_is_named_with_its_neighbour():
    with pytest.raises(KeyError, match="did you mean 'train/loss'"):
        MetricsTable(ROWS)["train/los"]


def test_it_is_shown_as_text_and_in_notebooks():
    table = MetricsTable(ROWS)
    lines = repr(table).splitlines()
    assert lines[0].split() == [
        "step",
        "rollout/success_rate",
        "train/loss",
        "eval/x/success_rate",
    ]
    assert lines[2].split() == ["2", "0.5", "0.25", "1"]
    assert "<td>0.25</td>" in table._repr_html_()
    assert len(repr(MetricsTable(ROWS * 50)).splitlines()) == 22
    assert "0 steps" in repr(MetricsTable([]))


def test_pandas_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        MetricsTable(ROWS).to_pandas()
    assert "pip install pandas" in caught.value.__notes__[0]


def test_a_data_frame_has_the_step_as_index():
    pytest.importorskip("pandas")
    frame = MetricsTable(ROWS).to_pandas()
    assert list(frame.index) == [1, 2] and list(frame["train/loss"]) == [0.5, 0.25]
