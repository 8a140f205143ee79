"""Which sessions count as the same, to the last bit."""

from __future__ import annotations

import pytest

from agentgym_rl.engines.native import lineages as module
from agentgym_rl.engines.native.lineages import FRESH, Lineages


def test_the_same_passes_give_the_same_lineage():
    lineages = Lineages()
    prompt = lineages.after(FRESH, [1, 2])
    assert prompt == lineages.after(FRESH, [1, 2])
    assert lineages.after(prompt, [3]) == lineages.after(prompt, [3])


def test_other_tokens_and_other_passes_give_other_lineages():
    lineages = Lineages()
    prompt = lineages.after(FRESH, [1, 2])
    histories = (
        FRESH,
        prompt,
        lineages.after(prompt, [3]),
        lineages.after(prompt, [4]),
        lineages.after(FRESH, [1, 2, 3]),  # the same tokens in one pass
    )
    assert len(set(histories)) == 5


def test_what_is_forgotten_is_never_taken_for_something_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_KNOWN", 3)
    lineages = Lineages()
    numbers = [lineages.after(FRESH, [token]) for token in range(10)]
    numbers += [lineages.after(FRESH, [token]) for token in range(10)]
    assert len(set(numbers)) == 20
