"""The sweep of all web tasks: its shares, and its reports put together."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("playwright", reason="the extra `web` is not installed")

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from web_bench import Share, TemplateReport, print_table, read_reports, shared


def test_shares_have_every_task_once():
    counts = [3, 1, 0, 4]
    parts = [shared(counts, Share(number, 3)) for number in (1, 2, 3)]
    assert parts == [[[0], [0], [], [2]], [[1], [], [], [0, 3]], [[2], [], [], [1]]]
    assert shared(counts, Share()) == [[0, 1, 2], [0], [], [0, 1, 2, 3]]


def test_a_share_is_written_as_a_fraction():
    assert Share.read("2/4") == Share(2, 4)
    for text in ("0/4", "5/4", "2", "a/b", "1/0"):
        with pytest.raises(argparse.ArgumentTypeError, match="2/4"):
            Share.read(text)


def test_reports_of_several_sweeps_make_one_table(tmp_path: Path):
    first = TemplateReport("a", 1, "train", "shop", num_tasks=2, num_solved=2, num_wrong=6)
    again = TemplateReport("a", 1, "train", "shop", num_tasks=1, num_solved=0, num_wrong=3)
    other = TemplateReport("b", 4, "test", "forum", 3, 3, num_wrong=9, wrongly_rewarded=["b/1"])
    files = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for file, reports in zip(files, ([first], [again, other]), strict=True):
        file.write_text("".join(json.dumps(vars(one)) + "\n" for one in reports))
    console = Console(width=200, record=True, file=io.StringIO())
    print_table(read_reports(files), console)
    assert console.export_text().splitlines()[2:] == [
        "| forum |  | 3 of 3 | 3 of 3 | 1 of 9 |",
        "| shop | 2 of 3 |  | 2 of 3 | 0 of 9 |",
        "| all | 2 of 3 | 3 of 3 | 5 of 6 | 1 of 18 |",
    ]
