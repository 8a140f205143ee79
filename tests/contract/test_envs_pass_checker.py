"""Every built-in environment keeps the contract of envs/base.py."""

from __future__ import annotations

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.checking.checker import check

EXPENSIVE = frozenset({"miniwob", "sciworld", "searchqa", "web"})
"""A task takes seconds here and not milliseconds, so few are drawn."""
NEEDS_SITES = frozenset({"webarena"})
"""Cannot be played without addresses; tests/unit/envs/test_webarena.py has pages that stand in."""
CHEAP = sorted(set(registry.BUILTIN) - EXPENSIVE - NEEDS_SITES)


@pytest.mark.parametrize("tasks_per_split", [2, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CHEAP)
def test_the_contract_holds(name: str, tasks_per_split: int):
    report = check(name, tasks_per_split=tasks_per_split)
    assert report.problems == ()
    assert report.num_tasks >= 2 * tasks_per_split
    assert report.expert_success_rate is not None and report.expert_success_rate >= 0.98


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(EXPENSIVE))
def test_the_contract_holds_over_a_few_expensive_tasks(name: str):
    report = check(name, tasks_per_split=2)
    assert report.problems == ()
    assert report.expert_success_rate == 1.0
