"""The pages of MiniWoB++: which there are, where they are, and their tasks.

The package `miniwob` brings the pages; nothing else of it is used. A task is a page and a seed. The
number of a task is 1,000 times the page's place in `PAGES`, which never changes, plus the seed.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from agentgym_rl.types import Task

ENV_NAME = "miniwob"
SEEDS_PER_PAGE = 1000
SPLIT_SEEDS = {"train": range(10, 110), "test": range(10)}
"""Split -> seeds of each page."""

PAGES: tuple[str, ...] = tuple(
    """
    ascending-numbers bisect-angle book-flight-nodelay book-flight button-delay buy-ticket
    chase-circle choose-date-easy choose-date-medium choose-date-nodelay choose-date choose-list
    circle-center click-button-sequence click-button click-checkboxes-large click-checkboxes-soft
    click-checkboxes-transfer click-checkboxes click-collapsible-2-nodelay click-collapsible-2
    click-collapsible-nodelay click-collapsible click-color click-dialog-2 click-dialog click-link
    click-menu-2 click-menu click-option click-pie-nodelay click-pie click-scroll-list click-shades
    click-shape click-tab-2-easy click-tab-2-hard click-tab-2-medium click-tab-2 click-tab
    click-test-2 click-test-transfer click-test click-widget copy-paste-2 copy-paste count-shape
    count-sides daily-calendar drag-box drag-circle drag-cube drag-items-grid drag-items
    drag-shapes-2 drag-shapes drag-single-shape drag-sort-numbers draw-circle draw-line
    email-inbox-delete email-inbox-forward-nl-turk email-inbox-forward-nl email-inbox-forward
    email-inbox-important email-inbox-nl-turk email-inbox-noscroll email-inbox-reply
    email-inbox-star-reply email-inbox enter-date enter-password enter-text-2 enter-text-dynamic
    enter-text enter-time find-greatest find-midpoint find-word focus-text-2 focus-text
    form-sequence-2 form-sequence-3 form-sequence generate-number grid-coordinate guess-number
    highlight-text-2 highlight-text hot-cold hover-shape identify-shape login-user-popup login-user
    moving-items multi-layouts multi-orderings navigate-tree number-checkboxes odd-or-even
    order-food phone-book read-table-2 read-table resize-textarea right-angle scroll-text-2
    scroll-text search-engine sign-agreement simon-says simple-algebra simple-arithmetic
    social-media-all social-media-some social-media stock-market terminal text-editor
    text-transform tic-tac-toe unicode-test use-autocomplete-nodelay use-autocomplete
    use-colorwheel-2 use-colorwheel use-slider-2 use-slider use-spinner visual-addition
    """.split()
)
"""All pages of the package. The order is part of every task's number."""

CATEGORIES: dict[str, tuple[str, ...]] = {
    "click": tuple(
        """click-button click-button-sequence click-dialog click-dialog-2 click-link click-test
        click-test-2 click-test-transfer click-widget click-tab focus-text focus-text-2
        ascending-numbers odd-or-even sign-agreement""".split()
    ),
    "choose": tuple(
        """click-option click-checkboxes click-checkboxes-large click-checkboxes-soft
        click-checkboxes-transfer choose-list click-scroll-list choose-date-easy choose-date-medium
        choose-date-nodelay use-spinner use-slider use-slider-2""".split()
    ),
    "type": tuple(
        """enter-text enter-text-2 enter-text-dynamic enter-password enter-date enter-time
        text-transform unicode-test copy-paste copy-paste-2
        use-autocomplete-nodelay generate-number guess-number simple-algebra simple-arithmetic
        terminal""".split()
    ),
    "form": tuple(
        """login-user login-user-popup form-sequence form-sequence-2 form-sequence-3 multi-layouts
        multi-orderings book-flight-nodelay buy-ticket order-food search-engine
        daily-calendar""".split()
    ),
    "find": tuple(
        """click-tab-2 click-tab-2-easy click-tab-2-medium click-tab-2-hard click-collapsible-nodelay
        click-collapsible-2-nodelay click-menu
        click-menu-2 navigate-tree find-word find-greatest read-table read-table-2 phone-book
        scroll-text scroll-text-2""".split()
    ),
    "message": tuple(
        """email-inbox email-inbox-delete email-inbox-forward email-inbox-forward-nl
        email-inbox-forward-nl-turk email-inbox-important email-inbox-nl-turk email-inbox-noscroll
        email-inbox-reply email-inbox-star-reply social-media social-media-all
        social-media-some""".split()
    ),
}
"""Category -> its pages. Pages that need dragging, drawing, precise points, colours or shapes that
have no name are in none, because nothing that an agent can read says how to solve them; nor are
those whose lists and animations wait, where the package has the same page without delays."""

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
