"""A web server with pages for tests, and a real browser."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentgym_rl.browser.browsing import Browsing, Layout
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.session import BrowserOptions

PAGES: dict[str, str] = {}
"""Path -> body, filled by the tests."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/redirect"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
            return
        if path == "/slow":
            time.sleep(0.5)
        self.send_response(200 if path in PAGES else 404)
        kind = "application/pdf" if path.endswith(".pdf") else "text/html; charset=utf-8"
        if path.endswith(".zip"):
            kind = "application/zip"
        self.send_header("Content-Type", kind)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(PAGES.get(path, "<h1>Not found</h1>").encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Site:
    """A running site and the browser that looks at it."""

    url: str
    names: Names

    def browse(self, layout: Layout | None = None, **settings: object) -> Browsing:
        options = BrowserOptions(Origins((self.url,)), self.names, **settings)  # type: ignore[arg-type]
        return Browsing(options, layout or Layout(has_address=False))


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    if find_browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    names = Names((("site.test", address), ("other.test", address)))
    yield Site("http://site.test", names)
    server.shutdown()


@pytest.fixture
def browsing(site: Site) -> Iterator[Browsing]:
    made = site.browse()
    yield made
    made.close()


def show(browsing: Browsing, body: str, path: str = "/page") -> str:
    """Serve a page and return what is seen of it."""
    PAGES[path] = f"<!doctype html><title>A page</title><body>{body}"
    return browsing.open(f"http://site.test{path}").text
