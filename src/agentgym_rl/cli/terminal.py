"""How commands use the terminal: tables, Ctrl-C while they start, messages that repeat."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.table import Table

from agentgym_rl.report.words import command

if TYPE_CHECKING:  # only servers need the HTTP stack
    from agentgym_rl.serving.bound import Address

logger = logging.getLogger(__name__)


def print_table(table: Table) -> None:
    """Print a table to fit the terminal, or 80 columns of a file or a pipe; texts stay whole."""
    for column in table.columns:
        column.overflow = "fold"
        column.no_wrap = False
    Console().print(table)


def in_lines(text: str) -> str:
    """Return a remedy of several parts with a line for each."""
    return text.replace("; ", "\n  ")


def print_markdown(text: str) -> None:
    """Print Markdown to fit the terminal, or 80 columns; words in tables stay whole."""
    Console().print(_WholeMarkdown(text))


class _WholeTable(TableElement):
    """A table whose long words are folded, not cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class _WholeMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "table_open": _WholeTable,
    }


class ToldInterrupt(SystemExit):
    """Ctrl-C ended the command, which has said so itself."""


def suggest(*commands: Sequence[object]) -> None:
    """Print what to do next: one command per line, each given by its words."""
    for place, words in enumerate(commands):
        print(f"{'' if place else 'next':<7} {command(*words)}")


def announce(what: str, address: Address, url: str) -> None:
    """Print where a server listens, once it does."""
    print(f"{what} at {url} (Ctrl-C stops)", flush=True)
    if address.is_open and not address.token:
        print("WARNING: anyone who reaches this address can use it; see --token", flush=True)


@contextmanager
def interruptible_imports() -> Iterator[None]:
    """Let Ctrl-C end the process at once: an import may swallow a KeyboardInterrupt.

    A command in the background, which ignores Ctrl-C, still does.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end_start_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_start_up(number: int, _: FrameType | None) -> None:
    os.write(2, b"error: stopped while starting; nothing was begun\n")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@dataclass(slots=True)
class _Span:
    """Messages of one wording in a span of time."""

    began: float
    num_passed: int = 0
    num_held_back: int = 0
    last: str = ""
    """The last one held back."""


class FewRepeats(logging.Filter):
    """Lets a few messages of one wording through in a span of time, and counts the rest.

    While a server is away every episode under way says so, and what matters is lost among them.
    """

    MAX = 5
    SPAN_S = 10.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._spans: dict[str, _Span] = {}
        """By wording."""

    def filter(self, record: logging.LogRecord) -> bool:
        now, wording = self._clock(), str(record.msg)
        span = self._spans.setdefault(wording, _Span(now))
        if now - span.began >= self.SPAN_S:
            if span.num_held_back:
                record.msg = f"{record.msg} (and {span.num_held_back} more like it before)"
            span = self._spans[wording] = _Span(now)
        if span.num_passed < self.MAX:
            span.num_passed += 1
            return True
        span.num_held_back, span.last = span.num_held_back + 1, record.getMessage()
        return False

    def tell_rest(self) -> None:
        """Say how many messages are still held back, and the last of each wording."""
        for span in self._spans.values():
            if span.num_held_back:
                logger.warning("%d more like: %s", span.num_held_back, span.last)
        self._spans.clear()
