"""Lets every test import the shared stand-ins (tests/fakes.py, tests/env_servers.py) by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-actions",
        type=int,
        default=None,
        help="actions a scenario in tests/contract/test_fuzz_actions.py; by default a few thousand",
    )
