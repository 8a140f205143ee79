"""`agentgym import` and `agentgym rescore`: run folders made of stored episodes. No torch."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.cli.terminal import suggest
from agentgym_rl.rewards import load_function
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.imports import import_episodes
from agentgym_rl.runs.rescoring import rescore_run


def run_import(source: Path, output: Path, *, env: str) -> None:
    """Import episodes, and print a summary."""
    summary = import_episodes(source, RunFolder(output), env=env)
    reward = "none given" if summary.reward_mean is None else f"{summary.reward_mean:.3f}"
    print(
        f"{summary.num_episodes} episodes of {summary.num_steps} steps in {output}: "
        f"success {summary.success_rate:.1%}, mean reward {reward}"
    )
    suggest(["agentgym", "ui", output.parent], ["agentgym", "report", output])


def run_rescoring(run: Path, reward: str, output: Path) -> None:
    """Rescore a run, and print what changed."""
    function = load_function(reward, setting="--reward")
    summary = rescore_run(RunFolder(run), function, RunFolder(output))
    print(
        f"{summary.num_episodes} episodes in {output}, of which {summary.num_changed} have another "
        f"reward: mean {summary.mean_before:.4f} before, {summary.mean_after:.4f} after"
    )
    suggest(["agentgym", "ui", output.parent])
