"""`agentgym eval --compare`. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.cli.terminal import print_markdown
from agentgym_rl.evaluation.compare import compare_folders


def run_comparison(a: Path, b: Path, *, common: bool) -> None:
    """Print whether the evaluation in `b` is better than that in `a`."""
    for comparison in compare_folders(a, b, common=common):
        print_markdown(comparison.to_markdown())
