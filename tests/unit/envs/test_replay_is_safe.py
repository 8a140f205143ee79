"""Which environments promise that stored actions may be played again."""

from __future__ import annotations

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.scenarios.searchqa.env import make_spec
from agentgym_rl.envs.scenarios.searchqa.options import SearchOptions
from fakes import fake_spec

IN_A_BROWSER = {"miniwob", "web", "webarena"}
"""Where an action may name an address, even if only the task's own can be reached."""


@pytest.mark.parametrize("name", sorted(set(registry.BUILTIN) - IN_A_BROWSER))
def test_built_in_environments_only_compute(name: str):
    assert registry.env_class(name).spec.replay_is_safe


def test_nobody_else_promises_it_unasked():
    assert not fake_spec("own").replay_is_safe


@pytest.mark.parametrize(
    "options",
    [
        {"python": True},
        {"retriever": "remote", "url": "http://127.0.0.1:9"},
        {"corpus": "/etc/passwd"},
        {"retriever": "dense", "index": "somewhere"},
    ],
)
def test_searchqa_promises_it_only_over_what_is_built_in(options: dict[str, object]):
    assert not make_spec(SearchOptions(**options)).replay_is_safe  # type: ignore[arg-type]  # any
    assert make_spec(SearchOptions(topk=5, reward="f1")).replay_is_safe
