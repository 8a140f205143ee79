"""Looking at the web UI with a real browser: pages that fail on errors and on leaving requests."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Dialog, Page, expect

VIEWPORT = {"width": 1366, "height": 768}
PATIENCE_MS = 20_000
"""For what a busy machine does slowly; what is there already is seen at once."""
_KEYS_MS = 4000

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def watched_page(browser: Browser, *, theme: Literal["dark", "light"] = "light") -> Iterator[Page]:
    """Give a page; afterwards it must have had no error, no dialog and no request elsewhere."""
    page = browser.new_page(viewport=VIEWPORT, color_scheme=theme)  # type: ignore[arg-type]  # a TypedDict
    page.set_default_timeout(PATIENCE_MS)
    faults: list[str] = []

    def on_dialog(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", on_dialog)
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("console", lambda line: _judge_line(line.type, line.text, faults))
    page.on("request", lambda request: _judge_request(page, request.url, faults))
    try:
        yield page
        assert not faults, "\n".join(faults)
    finally:
        page.close()


def show(page: Page, url: str, link: str) -> None:
    """Open a deep link in a fresh document, as from a message of a colleague."""
    page.goto("about:blank")
    page.goto(f"{url}/{link}")


def go_by_keys(page: Page, keys: str, title: str) -> None:
    """Press keys such as "g e" until the view has come to which they lead.

    A person's keys carry the time at which they were pressed. Those of a browser that is driven
    are sent one after another, and while the page is busy come too late to belong together.
    """
    found = re.compile(f"^{title}")
    for _ in range(PATIENCE_MS // _KEYS_MS):
        for key in keys.split():
            page.keyboard.press(key)
        try:
            expect(page).to_have_title(found, timeout=_KEYS_MS)
        except AssertionError:
            continue
        return
    expect(page).to_have_title(found)


def link_of(page: Page) -> str:
    """Return the present deep link."""
    return "#" + page.url.partition("#")[2]


def expect_link(page: Page, part: str) -> None:
    """Wait until the deep link has this part."""
    expect(page).to_have_url(re.compile(re.escape(part)))


def num_points(page: Page, metric: str) -> int:
    """Return how many points the curve of a metric has on the runs overview; 0 without a curve."""
    return page.evaluate(
        "metric => document.querySelector(`[data-metric='${metric}'] .chart`)"
        "?.data?.[0]?.x.length ?? 0",
        metric,
    )


def wait_for_points(page: Page, metric: str, at_least: int, *, timeout_s: float = 60.0) -> int:
    """Return the number of points of a curve once there are so many; its page is not reloaded."""
    deadline = time.monotonic() + timeout_s
    while (found := num_points(page, metric)) < at_least:
        assert time.monotonic() < deadline, f"{metric} has {found} points, not {at_least}"
        page.wait_for_timeout(100)
    return found


def _judge_line(kind: str, text: str, faults: list[str]) -> None:
    # What an answer with an error status leaves in the console is shown on the page as well.
    if "Content Security Policy" in text or (kind == "error" and "Failed to load" not in text):
        faults.append(f"console: {text}")


def _judge_request(page: Page, url: str, faults: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob", "about") and parts.hostname != "127.0.0.1":
        faults.append(f"request: {url}")
