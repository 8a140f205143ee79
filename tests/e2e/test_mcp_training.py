"""A run on the tools of an MCP server: real processes, one for each episode."""

from __future__ import annotations

from pathlib import Path

import agentgym_rl as ag
from agentgym_rl.envs.adapters.mcp import McpTask, mcp_class
from mcp_servers import QUICK, server_of
from training_runs import RECIPE

TASKS = tuple(
    McpTask(goal=f"Count to {n}.", split=split, expert=(f"count(by={n})", 'answer(text="")'),
            data={"sum": str(n)})
    for split in ("train", "test") for n in (1, 2, 3)
)  # fmt: skip


def test_a_model_trains_on_the_tools_of_a_server(tmp_path: Path):
    quiet = QUICK.replace('("hang", "die", "pid")', "()")
    counter = mcp_class(
        server_of(tmp_path, quiet),
        name="counter",
        tasks=TASKS,
        score=lambda episode: float(episode.final == episode.task.data["sum"]),
        final_call="count(by=0)",
        max_rounds=3,
    )
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    changes = ["training.steps=2", "warm_start.num_demos=3", "env.levels=[]", "eval.tasks=0"]
    run = ag.train(recipe, changes, env=counter, run_dir=tmp_path / "run")
    assert run.metrics["rollout/episodes_failed"] == [0.0, 0.0]
    assert run.metrics["rollout/episodes"] == [8.0, 8.0]
