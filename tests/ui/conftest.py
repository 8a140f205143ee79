"""A real browser for the tests of the web UI, and pages that notice what must never happen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from agentgym_rl.browser.executable import find_browser
from ui_browser import watched_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Of a module, not of the session: while Playwright runs, no other test may run an event loop.
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as page:
        yield page
