"""The goal and the last action of an episode, out of its messages and rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.ui.part_columns import part_columns
from ui_servers import episode


@pytest.mark.parametrize(
    ("told", "goal"),
    [
        ("Your goal: go to the red ball\nwall: 3 ahead", "go to the red ball"),
        ("Crafting commands:\ncraft 1 stick\n\nGoal: craft leather.", "craft leather."),
        ("Example:\nQuestion: of the example?\n\nQuestion: who?", "who?"),
        ("Your task is to boil water. First, look.", "to boil water. First, look."),
        ("Guess my number.\nIt is below 9.", "Guess my number."),
        ("The goal is near", "near"),
        ("", None),
    ],
)
def test_the_goal_is_read_out_of_what_the_agent_was_told(
    tmp_path: Path, told: str, goal: str | None
):
    write_episodes(tmp_path, [[episode(1, 0, texts=(told, "ok"))]], phase="train", step=1)
    (row,) = part_columns(tmp_path / "train-000001.parquet", 0).episodes.to_pylist()
    assert row["goal"] == goal
    # The last reply holds no action, so its beginning stands for one.
    assert row["last_action"] == "mumble"
