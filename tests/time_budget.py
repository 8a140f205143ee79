"""Prints what the tests cost, by part, beside what each part may cost.

Costs are processor seconds of a test and of the processes that it started and that have ended, so
a busy machine does not change them much. On two cores a run takes at least half their sum.
"""

from __future__ import annotations

import json
import os
import re
import resource
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

BUDGETS_S = {
    "unit": 500,
    "contract": 40,
    "security": 60,
    "e2e": 240,
    "learning": 20,
    "ui": 100,
    "web": 120,
}
"""Of `make test`, by folder; what drives pages of web scenarios is of `web`. Ten minutes on two
cores are 1,200 processor seconds, and a tenth of them is spent waiting."""

_OF_WEB = re.compile(r"web|browser|miniwob")

MAX_TEST_S = 15.0
"""A test that costs more is named, so that one that grows is seen."""

RECORD = Path(__file__).with_name("costs.json")
"""What tests cost when `--costs` was last used over all of them, or half of their time where they
wait, as on Java or a deadline: those above `_RECORDED_S`."""
_RECORDED_S = 0.1

_COST = "processor_s"
_STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="write what costly tests cost to this JSON file")
    parser.addoption(
        "--max-cost",
        type=float,
        help="leave out tests that cost more seconds, by tests/costs.json",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    limit: float | None = config.getoption("--max-cost")
    if limit is None:
        return
    costs: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    costly = [item for item in items if costs.get(item.nodeid, 0.0) > limit]
    config.hook.pytest_deselected(items=costly)
    items[:] = [item for item in items if costs.get(item.nodeid, 0.0) <= limit]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_STARTED] = _processor_s()
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add the cost to the last report of a test, with which it travels to the first process."""
    if call.when == "teardown" and _STARTED in item.stash:
        item.user_properties.append((_COST, _processor_s() - item.stash[_STARTED]))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that prints
        config.pluginmanager.register(_Costs(config.getoption("--costs")))


class _Costs:
    def __init__(self, file: Path | None) -> None:
        self._file, self._costs, self._lengths = file, dict[str, float](), dict[str, float]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self._lengths[test] = self._lengths.get(test, 0.0) + report.duration
        if report.when == "teardown":
            cost = dict(report.user_properties).get(_COST)
            if isinstance(cost, float):
                self._costs[test] = cost

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._file is not None:
            costs = {t: max(cost, self._lengths[t] / 2) for t, cost in self._costs.items()}
            costly = {t: round(cost, 1) for t, cost in sorted(costs.items()) if cost > _RECORDED_S}
            text = json.dumps(costly, indent=1, ensure_ascii=False)
            self._file.write_text(text + "\n", encoding="utf-8")
        parts = dict[str, list[float]]()
        for test, cost in self._costs.items():
            parts.setdefault(_part(test), []).append(cost)
        terminalreporter.section("processor seconds, and the budget of `make test`")
        for part, costs in sorted(parts.items()):
            budget = BUDGETS_S.get(part, 0)
            mark = "  OVER ITS BUDGET" if budget and sum(costs) > budget else ""
            terminalreporter.line(
                f"{part:10} {len(costs):5} tests {sum(costs):7.0f} s of {budget}{mark}"
            )
        for test, cost in sorted(self._costs.items(), key=lambda item: -item[1]):
            if cost > MAX_TEST_S:
                terminalreporter.line(f"{cost:7.1f} s  {test}")


def _part(test: str) -> str:
    file, _, _ = test.partition("::")
    return "web" if _OF_WEB.search(file) else Path(file).parts[1]


def _processor_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + _forked_s()


def _forked_s() -> float:
    """Return what commands cost (tests/commands.py): they are children of a process beside us."""
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if server is None:
        return 0.0
    after_name = Path(f"/proc/{server}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    ticks = sum(map(int, after_name.split()[11:15]))  # its own, and of children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")
