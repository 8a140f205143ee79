"""How a page is written: `compact`, which saves tokens, and `webarena`, the original's text."""

from __future__ import annotations

from agentgym_rl.browser.layouts.compact import compact_lines
from agentgym_rl.browser.layouts.lines import Line
from agentgym_rl.browser.layouts.webarena import webarena_lines

__all__ = ["LAYOUTS", "Line", "compact_lines", "webarena_lines"]

LAYOUTS = {"compact": compact_lines, "webarena": webarena_lines}
"""Name -> function from the root of a page to its lines."""
