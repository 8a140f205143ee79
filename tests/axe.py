"""axe-core's rules for accessible pages, run in the browser of a test."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page

GRAVE = ("serious", "critical")
_RUN = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
    .map(found => [found.impact, found.id, found.nodes.map(node => node.html.slice(0, 160))])"""


def axe_source() -> str:
    """Return axe-core's script. Skips the test where its package is not installed."""
    spec = find_spec("axe_playwright_python")
    file = Path(spec.origin).parent / "axe.min.js" if spec and spec.origin else None
    if file is None or not file.is_file():
        pytest.skip("axe-core is not installed: pip install axe-playwright-python")
    return file.read_text(encoding="utf-8")


def grave_faults(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical in the page that is shown."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(axe_source())
    found = page.evaluate(_RUN)
    return [f"{impact} {rule}: {nodes[:2]}" for impact, rule, nodes in found if impact in GRAVE]
