"""Where what is made at first use is kept: corpora, questions, indexes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache folder for deep search; AGENTGYM_CACHE names another root."""
    root = os.environ.get("AGENTGYM_CACHE")
    if root:
        return Path(root) / "searchqa"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentgym-rl" / "searchqa"
