"""The documentation site: it builds without a broken link, has everything, and asks nobody else."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, get_args

import pytest
from playwright.sync_api import sync_playwright
from pydantic import BaseModel

import agentgym_rl
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.config import RunConfig
from axe import grave_faults

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "src" / "agentgym_rl"
# Of a link that the browser follows by itself: scripts, styles, pictures, fonts.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?P<src>[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|pre))[^>]*\bhref=["']?(?P<href>[^"'\s>]+)"""
)
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)(?:#[^)\s]*)?\)")
METRIC = re.compile(r'"((?:rollout|train|eval|time)/\w+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: warnings, such as a broken link, are errors."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def pages(site: Path) -> dict[str, str]:
    return {str(file.relative_to(site)): file.read_text("utf-8") for file in site.rglob("*.html")}


def test_no_page_loads_anything_from_another_host(site: Path):
    loaded = {
        match["src"] or match["href"]
        for text in pages(site).values()
        for match in LOADED.finditer(text)
    }
    assert loaded and not {address for address in loaded if re.match(r"(https?:)?//", address)}
    styles = "".join(file.read_text("utf-8") for file in site.rglob("*.css"))
    assert not re.search(r"url\(\s*['\"]?(https?:)?//", styles)


def test_it_can_be_searched_without_a_server(site: Path):
    index = (site / "search" / "search_index.js").read_text("utf-8")
    found = json.loads(index.removeprefix("var __index = "))
    assert any("training.lr" in entry["text"] for entry in found["docs"])


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Give the address of a server of the site: its 404 page has addresses from the root."""
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """A handler that prints no line per request."""

    def log_message(self, format: str, *args: object) -> None: ...


def faults_of(
    url: str, names: Sequence[str], width: int, theme: Literal["light", "dark"]
) -> list[str]:
    """Return what axe-core finds grave, and how far pages are wider than their window."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    faults = list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
        )
        for name in names:
            page.goto(f"{url}/{name}")
            beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            wide = [f"{beyond} pixels beyond the window"] if beyond > 0 else []
            faults += [f"{name}: {fault}" for fault in [*grave_faults(page), *wide]]
        browser.close()
    return faults


FEW = ("404.html", "index.html", "about/differences.html", "reference/settings.html")
"""Pages with tables, drawings, generated contents, and none of these."""


@pytest.mark.parametrize(("width", "theme"), [(1366, "dark"), (390, "light")])
def test_pages_are_accessible_and_fit_the_window(
    site: Path, width: int, theme: Literal["light", "dark"]
):
    with served(site) as url:
        assert faults_of(url, FEW, width, theme) == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("width", "theme"), [(1366, "light"), (390, "dark")])
def test_all_pages_are_accessible_and_fit_the_window(
    site: Path, width: int, theme: Literal["light", "dark"]
):
    names = sorted(pages(site))
    assert len(names) > 60
    with served(site) as url:
        assert faults_of(url, names, width, theme) == []


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield every setting with its dotted key; a union yields those of all its members."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        sections = [
            kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        for section in sections:
            yield from settings_of(section, f"{prefix}{name}.")
        if not sections:
            yield f"{prefix}{name}"


def test_every_setting_is_in_the_reference(site: Path):
    page = (site / "reference" / "settings.html").read_text("utf-8")
    # A table of [envs] says which sections it may change; their keys are in their own sections.
    keys = {re.sub(r"^envs\.(\w+).*", r"envs.LABEL.\1", key) for key in settings_of(RunConfig)}
    missing = {key for key in keys if f">{key}</code>" not in page and not key.endswith(".type")}
    assert len(keys) > 100 and missing == set()


def test_every_public_name_is_on_the_page_of_the_api_and_says_what_it_does(site: Path):
    page = (site / "reference" / "python-api.html").read_text("utf-8")
    names = agentgym_rl.__all__
    assert [name for name in names if f'id="agentgym_rl.{name}"' not in page] == []
    assert [name for name in names if not inspect.getdoc(getattr(agentgym_rl, name))] == []


def test_every_command_is_in_the_reference(site: Path):
    page = (site / "reference" / "command-line.html").read_text("utf-8")
    for name in ("train", "eval", "serve", "envs", "play", "demos", "check", "ui", "doctor"):
        assert f'id="agentgym-{name}"' in page


def test_every_link_leads_to_a_file_in_the_repository_too():
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    linked = [
        (page, target)
        for page in [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / name for name in names)]
        for target in RELATIVE_LINK.findall(page.read_text("utf-8"))
    ]
    assert len(linked) > 100
    dead = [f"{page}: {target}" for page, target in linked if not (page.parent / target).exists()]
    assert dead == []


def test_every_metric_that_the_code_writes_is_documented():
    page = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text("utf-8")
    written = {
        name
        for file in SOURCE.rglob("*.py")
        if "templates" not in file.parts  # packages to start from, whose metrics are their own
        for name in METRIC.findall(file.read_text("utf-8"))
    }
    assert len(written) > 50
    assert {name for name in written if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_pages_of_the_repository_link_to_files_that_are_there(page: str):
    text = (REPOSITORY / page).read_text("utf-8")
    targets = {target for target in re.findall(r"\]\(([^)#\s]+)", text) if ":" not in target}
    assert {target for target in targets if not (REPOSITORY / target).exists()} == set()


def test_the_readme_is_one_screen_and_a_half():
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 90
