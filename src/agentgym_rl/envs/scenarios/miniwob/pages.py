"""The pages of MiniWoB++: which there are, where they are, and their tasks.

The package `miniwob` brings the pages; nothing else of it is used. pages.toml lists them. A task is
a page and a seed.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from agentgym_rl.types import Task

ENV_NAME = "miniwob"
SEEDS_PER_PAGE = 1000
SPLIT_SEEDS = {"train": range(10, 110), "test": range(10)}
"""Split -> seeds of each page."""

_DATA = tomllib.loads(Path(__file__).with_name("pages.toml").read_text("utf-8"))
PAGES: tuple[str, ...] = tuple(_DATA["pages"])
"""All pages of the package, in the order of their numbers."""
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    category: tuple(pages) for category, pages in _DATA["categories"].items()
}
"""Category -> the pages that are played."""

_NUMBERS = {page: number for number, page in enumerate(PAGES)}


@cache
def tasks_of(split: str) -> tuple[Task, ...]:
    """Return the tasks of a split: every page with the first seed, then with the next one."""
    return tuple(
        Task(ENV_NAME, split, _NUMBERS[page] * SEEDS_PER_PAGE + seed, category, page)
        for seed in SPLIT_SEEDS[split]
        for category, pages in CATEGORIES.items()
        for page in pages
    )


def page_of(index: int) -> str:
    """Return the page of a task's number. Raises ValueError where no page has it."""
    number = index // SEEDS_PER_PAGE
    if not 0 <= number < len(PAGES):
        raise ValueError(f"miniwob has no task {index}")
    return PAGES[number]


@cache
def pages_folder() -> Path:
    """Return where the pages are. Raises ModuleNotFoundError where `miniwob` is not installed."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'miniwob'", name="miniwob")
    # Not imported, because that loads selenium.
    return (Path(next(iter(spec.submodule_search_locations))) / "html").resolve()
