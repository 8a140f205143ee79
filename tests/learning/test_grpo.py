"""GRPO must teach a model: the quickstart recipe, shortened, on held-out tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import dump_config, load_config
from agentgym_rl.experiment import read_reports, train
from agentgym_rl.runs.folder import RunFolder


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_grpo_raises_held_out_success(tmp_path: Path):
    config = load_config("quickstart", ["training.steps=45", "eval.every=0"])
    run = RunFolder(tmp_path / "run")
    run.create(dump_config(config))

    await train(config, run)

    before, after = (report.overall.success_rate for report in read_reports(run))
    assert after - before >= 0.2, f"held-out success went from {before:.0%} to {after:.0%}"
