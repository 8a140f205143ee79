"""`agentgym ui`."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.errors import ConfigError, install_command


def run_ui(
    runs: Path,
    *,
    host: str,
    port: int,
    opens_browser: bool,
    is_public: bool,
    envs: Sequence[str],
) -> None:
    """Serve the web UI until interrupted."""
    try:
        from agentgym_rl.ui.server import UiServer  # an optional extra
    except ModuleNotFoundError as error:
        remedy = install_command("ui")
        raise ConfigError(f"the web UI needs {error.name!r}: {remedy}") from error

    def announce(url: str) -> None:
        print(f"the web UI of {runs} is at {url} (Ctrl-C stops)", flush=True)
        if opens_browser:
            webbrowser.open(url)

    UiServer(runs, host=host, port=port, is_public=is_public, envs=envs, on_ready=announce).run()
