"""The benchmark of the web UI: its run is one that a trainer could have written."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import ui_episodes

from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import RunFolder


def test_the_run_is_read_back_as_episodes(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    ui_episodes.write_run(run.path, ui_episodes.Size(3, 16, 60))
    parts = sorted(run.episodes.glob("train-*.parquet"))
    assert len(parts) >= 3 and len(run.read_metrics()) >= 3
    episodes = read_episodes(parts[0])
    assert len(episodes) == 16
    assert all(len(episode.samples[0].token_ids) == 60 for episode in episodes)
