"""What overlapping is worth: the law in virtual time, and the table of `agentgym bench overlap`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import Metrics
from fake_engines import RestlessEngine
from virtual_time import virtual_seconds

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import overlap_bench
from overlap_bench import WAYS, Times, run_way

SMALL = Times(steps=10, groups=8, group_size=4)
WHOLE = Times()


def restless(times: Times, token_ids: Sequence[int]) -> RestlessEngine:
    return RestlessEngine(times.reply_s, token_ids)


@dataclass(frozen=True)
class Run:
    lines: list[Metrics]
    seconds: float

    @property
    def stalest(self) -> float:
        return max(line.get("rollout/staleness_max", 0.0) for line in self.lines)


def runs_of(times: Times, folder: Path, ways: Sequence[str]) -> dict[str, Run]:
    return {
        way: Run(
            *virtual_seconds(
                lambda loop, way=way: run_way(
                    way, times, folder / way, make_engine=restless, sleep=loop.sleep
                )
            )
        )
        for way in ways
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("times", "gains"),
    [
        pytest.param(SMALL, (1.5, 1.15, 1.9), id="small", marks=pytest.mark.slow),
        pytest.param(WHOLE, (1.6, 1.15, 2.2), id="whole", marks=pytest.mark.long),
    ],
)
def test_overlapping_is_faster_and_no_staler_than_it_may_be(
    times: Times, gains: tuple[float, float, float], tmp_path: Path
):
    runs = runs_of(times, tmp_path, WAYS)
    seconds = {way: run.seconds for way, run in runs.items()}
    assert seconds["synchronous"] / seconds["1"] >= gains[0]
    assert seconds["carried"] / seconds["1"] >= gains[1]
    assert seconds["synchronous"] / seconds["2"] >= gains[2]
    assert [runs[way].stalest for way in WAYS] == [0, 1, 1, 2]
    assert all(len(run.lines) == times.steps for run in runs.values())


def test_the_table_has_a_row_for_each_way(capsys: pytest.CaptureFixture[str]):
    words = "--scale 0.01 --steps 2 --groups 2 --group-size 2 --ways synchronous 1"
    overlap_bench.main(words.split(" "))
    shown = capsys.readouterr().out
    assert "synchronous" in shown and "overlapped, 1" in shown
