"""Lets every test import the shared stand-ins (tests/fakes.py, tests/env_servers.py) by name."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from agentgym_rl.garbage import collect_rarely

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))  # `examples`, as from the command line

pytest_plugins = ("time_budget",)

# A busy machine is slow, which is no failure; the same cases every time.
settings.register_profile("ours", deadline=None, derandomize=True)
settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder with nothing in it at first, for all processes of this run of the tests."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_CACHE", str(folder / "cache"))
        yield folder / "cache"


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later search for garbage.

    Otherwise the end of every collection of episodes would walk all of it.
    """
    gc.collect()
    collect_rarely()


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(report: object) -> None:
    """Make captured text fit for UTF-8, in which reports travel between the tests' processes."""
    if isinstance(report, pytest.TestReport | pytest.CollectReport):
        report.sections = [
            (name, text.encode("utf-8", "replace").decode("utf-8"))
            for name, text in report.sections
        ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-actions",
        type=int,
        default=None,
        help="actions a scenario in tests/contract/test_fuzz_actions.py; by default a few thousand",
    )
    parser.addoption(
        "--webarena-python",
        default="",
        help="a Python with the package webarena-verified, for tests/unit/envs/"
        "test_webarena_verified.py; by default the one that runs the tests, if it has it",
    )
