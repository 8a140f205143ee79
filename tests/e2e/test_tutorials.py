"""Every command of the documentation's tutorials runs, in one folder, page after page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import tutorials

PAGES = (
    "start.md",
    "tutorials/first-agent.md",
    "tutorials/reading-a-run.md",
    "tutorials/own-environment.md",
    "tutorials/evaluating-an-endpoint.md",
    "tutorials/several-gpus.md",
)
"""In this order: later pages look at what earlier ones have made. The page on one GPU is played in
tests/gpu/."""
ADDRESS = "http://127.0.0.1:8000/v1"
"""Of the endpoint, on the pages."""


class _Endpoint(BaseHTTPRequestHandler):
    """A chat model that always looks into its inventory."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        reply = b'{"choices": [{"message": {"role": "assistant", "content": "Action: inventory"}}]}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield {ADDRESS: f"http://127.0.0.1:{server.server_port}/v1"}
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorials")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        # Its processes start for half a minute; test_sharded_runs.py has the same law.
        pytest.param(page, marks=pytest.mark.long) if page.endswith("several-gpus.md") else page
        for page in PAGES
    ],
)
def test_a_tutorial_with_fewer_steps(page: str, folder: Path, places: dict[str, str]):
    tutorials.play(page, folder, whole=False, places=places)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_tutorials_as_they_are_written(tmp_path: Path, places: dict[str, str]):
    for page in PAGES:
        tutorials.play(page, tmp_path, whole=True, places=places)


def test_every_tutorial_is_played_or_needs_a_gpu():
    written = {f"tutorials/{page.name}" for page in (tutorials.DOCS / "tutorials").glob("*.md")}
    assert written - set(PAGES) == {"tutorials/one-gpu.md"}
    assert all(any(step.command for step in tutorials.steps(page)) for page in written)
