"""A run that learns from fixed data goes on with that data only."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.errors import RunError
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.data.fixed_data import hold_to_data
from agentgym_rl.types import Sample

ONE = Sample((1, 2, 3), (0, 1, 1), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (), 0)
OTHER = Sample((1, 2, 4), (0, 1, 1), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (), 0)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create("seed = 0\n")
    return run


def with_checkpoint(run: RunFolder) -> RunFolder:
    written = run.checkpoints / ".writing-1"
    written.mkdir(parents=True)
    run.complete_checkpoint(written, 1, keep=1)
    return run


def test_a_run_that_begins_takes_any_data(run: RunFolder):
    hold_to_data(run, [ONE])
    hold_to_data(run, [OTHER])


def test_a_run_that_goes_on_takes_the_same_data(run: RunFolder):
    hold_to_data(run, [ONE, OTHER])
    hold_to_data(with_checkpoint(run), [ONE, OTHER])


@pytest.mark.parametrize("changed", [[OTHER, ONE], [ONE], [ONE, ONE]])
def test_a_run_that_goes_on_refuses_other_data(run: RunFolder, changed: list[Sample]):
    hold_to_data(run, [ONE, OTHER])
    with pytest.raises(RunError, match=r"not what the run in .* began with"):
        hold_to_data(with_checkpoint(run), changed)
