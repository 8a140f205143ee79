"""`agentgym eval --compare`. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from agentgym_rl.evaluation.compare import compare_folders


def run_comparison(a: Path, b: Path, *, common: bool) -> None:
    """Print whether the evaluation in `b` is better than that in `a`."""
    console = Console()
    for comparison in compare_folders(a, b, common=common):
        console.print(Markdown(comparison.to_markdown()))
