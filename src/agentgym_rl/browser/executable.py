"""Where Chromium is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from agentgym_rl.errors import EnvError

REMEDY = (
    "on Debian: apt-get install chromium-headless-shell; elsewhere: playwright install chromium"
)
_VARIABLE = "AGENTGYM_BROWSER"
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PLAYWRIGHT_NAMES = ("headless_shell", "chrome", "chrome-headless-shell", "Chromium")


def find_browser() -> Path | None:
    """Return a Chromium: the one that AGENTGYM_BROWSER names, an installed one, or Playwright's."""
    named = os.environ.get(_VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise EnvError(f"{_VARIABLE}={named} is not an executable file")
        return Path(named)
    for name in _NAMES:
        if found := shutil.which(name):
            return Path(found)
    return _playwrights_own()


def require_browser() -> Path:
    """Return a Chromium. Raises EnvError with the remedy where there is none."""
    found = find_browser()
    if found is None:
        raise EnvError(f"no Chromium found; {REMEDY}")
    return found


def _playwrights_own() -> Path | None:
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    root = Path(folder) if folder else Path.home() / ".cache" / "ms-playwright"
    for build in sorted(root.glob("chromium*"), reverse=True):
        for name in _PLAYWRIGHT_NAMES:
            found = next((file for file in build.rglob(name) if os.access(file, os.X_OK)), None)
            if found is not None and found.is_file():
                return found
    return None
