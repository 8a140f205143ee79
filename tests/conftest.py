"""Lets every test import the shared stand-ins (tests/fakes.py, tests/env_servers.py) by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
