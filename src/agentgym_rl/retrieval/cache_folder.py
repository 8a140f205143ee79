"""Where indexes are kept that the first use builds."""

from __future__ import annotations

import os
from pathlib import Path

from agentgym_rl.errors import ConfigError


def cache_folder() -> Path:
    """Return the user's cache folder for deep search; AGENTGYM_CACHE names another root.

    Raises ConfigError where that is not a folder.
    """
    root = os.environ.get("AGENTGYM_CACHE")
    if root:
        if Path(root).exists() and not Path(root).is_dir():
            raise ConfigError(f"AGENTGYM_CACHE={root} is not a folder: name one, or unset it")
        return Path(root) / "searchqa"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "agentgym-rl" / "searchqa"
