"""`python -m agentgym_rl`: the command line, where `agentgym` is not on the path."""

from __future__ import annotations

from agentgym_rl.cli.main import main

if __name__ == "__main__":
    main()
