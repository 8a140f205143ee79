"""A bar on the terminal while an index is built; one line where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from agentgym_rl.retrieval.build import Report


@contextmanager
def progress_bar(what: str) -> Iterator[Report]:
    """Show a bar on standard error; give what moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, expected: progress.update(
            task, completed=done, total=None if expected is None else max(done, expected)
        )
